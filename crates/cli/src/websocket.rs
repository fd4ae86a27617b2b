//! The client's side of a WebSocket (RFC 6455), as far as a command in a container needs it: whole messages, without extensions.

use std::io;

use tokio::io::{AsyncRead, AsyncReadExt};

/// A longer message is an error. The kubelet sends pieces of 32 KiB.
const MAX_MESSAGE: u64 = 1 << 20;
/// A mask is against proxies that take the content of a message for a request. There are none on a unix socket.
const MASK: [u8; 4] = *b"mask";
const LAST: u8 = 0x80;
const MASKED: u8 = 0x80;
const BINARY: u8 = 2;
const CLOSE: u8 = 8;

/// The only frame of a message.
pub(crate) fn message(parts: &[&[u8]]) -> Vec<u8> {
    let length: usize = parts.iter().map(|part| part.len()).sum();
    let mut frame = vec![LAST | BINARY];
    match (u8::try_from(length), u16::try_from(length)) {
        (Ok(short @ 0..126), _) => frame.push(MASKED | short),
        (_, Ok(length)) => {
            frame.push(MASKED | 126);
            frame.extend(length.to_be_bytes());
        }
        _ => {
            frame.push(MASKED | 127);
            frame.extend(u64::try_from(length).unwrap_or(u64::MAX).to_be_bytes());
        }
    }
    frame.extend(MASK);
    let content = parts.iter().copied().flatten();
    frame.extend(content.zip(MASK.iter().cycle()).map(|(byte, mask)| byte ^ mask));
    frame
}

/// The next message of the server; `None` if it has closed the stream.
///
/// # Errors
/// The connection ended within a message, or the server sent something else.
pub(crate) async fn next_message(from: &mut (impl AsyncRead + Unpin)) -> io::Result<Option<Vec<u8>>> {
    let mut message = Vec::new();
    loop {
        let mut head = [0; 2];
        match from.read_exact(&mut head).await {
            Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => return Ok(None),
            read => read.map(drop)?,
        }
        let [first, second] = head;
        let length = match second & !MASKED {
            126 => u64::from(from.read_u16().await?),
            127 => from.read_u64().await?,
            short => u64::from(short),
        };
        let fits = message.len() as u64 + length <= MAX_MESSAGE;
        let wanted = usize::try_from(length).ok().filter(|_| fits && second & MASKED == 0);
        let wanted = wanted.ok_or_else(|| io::Error::new(io::ErrorKind::InvalidData, "an invalid frame"))?;
        let begins_at = message.len();
        message.resize(begins_at + wanted, 0);
        from.read_exact(message.get_mut(begins_at..).unwrap_or_default()).await?;
        match first & 0x0f {
            CLOSE => return Ok(None),
            // Pings and pongs: nothing waits for an answer.
            9.. => message.truncate(begins_at),
            _ if first & LAST != 0 => return Ok(Some(message)),
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read_all(bytes: &[u8]) -> Vec<Vec<u8>> {
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        let (mut from, mut messages) = (bytes, Vec::new());
        while let Ok(Some(message)) = runtime.block_on(next_message(&mut from)) {
            messages.push(message);
        }
        messages
    }

    #[test]
    fn messages_are_masked_and_have_the_shortest_form_of_their_length() {
        assert_eq!(
            message(&[&[0], b"ab"]),
            [&[0x82, 0x83][..], b"mask", &[b'm', b'a' ^ b'a', b's' ^ b'b']].concat()
        );
        assert_eq!(message(&[&[7; 126]])[..4], [0x82, 0xfe, 0, 126]);
        assert_eq!(message(&[&[7; 70_000]])[..10], [0x82, 0xff, 0, 0, 0, 0, 0, 1, 0x11, 0x70]);
    }

    #[test]
    fn messages_of_the_server_are_read_whole_until_it_closes() {
        let long = vec![7; 300];
        let bytes = [
            &b"\x82\x03\x01ab"[..],
            b"\x02\x01\x01\x89\x01p\x80\x01c",
            &[0x82, 126, 1, 44],
            &long,
            b"\x88\x00\x82\x01x",
        ];
        assert_eq!(read_all(&bytes.concat()), [b"\x01ab".to_vec(), b"\x01c".to_vec(), long]);
        assert!(read_all(b"\x82\x85maskhello").is_empty(), "a server does not mask");
        assert!(read_all(b"\x82\x7f\x00\x00\x00\x01\x00\x00\x00\x00").is_empty(), "4 GiB");
    }
}
