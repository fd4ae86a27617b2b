//! The subordinate ids of a user, from `getsubids`, because they may come from another source than `/etc/subuid`.

use std::time::Duration;

use model::request::IdRange;
use ports::host::{HostError, HostResult, ProgramCall, SubordinateIds};

use crate::program;

const PROGRAM: &str = "getsubids";
/// The program may query a directory service.
const TIMEOUT: Duration = Duration::from_secs(30);

/// `None` if the program is missing or does not know the user.
pub(crate) async fn of(user: &str) -> HostResult<Option<SubordinateIds>> {
    let Some(uids) = ask(&[user]).await? else { return Ok(None) };
    let Some(gids) = ask(&["-g", user]).await? else { return Ok(None) };
    Ok(Some(SubordinateIds { uids, gids }))
}

async fn ask(arguments: &[&str]) -> HostResult<Option<Vec<IdRange>>> {
    let call = ProgramCall {
        path: PROGRAM.into(),
        args: arguments.iter().map(|argument| (*argument).to_owned()).collect(),
        env: Vec::new(),
        input: Vec::new(),
        deadline: TIMEOUT,
    };
    let end = match program::run(&call).await {
        Ok(end) => end,
        Err(error) if error.is_not_found() => return Ok(None),
        Err(error) => return Err(error),
    };
    if end.code != Some(0) {
        return Ok(None);
    }
    let text = String::from_utf8_lossy(&end.output);
    match ranges(&text) {
        Some(ranges) => Ok(Some(ranges).filter(|ranges| !ranges.is_empty())),
        None => Err(HostError::Invalid(format!("{PROGRAM} {} answered {text:?}", arguments.join(" ")))),
    }
}

/// Lines like `0: kubelet 65536 7208960`: number, user, first id, how many.
fn ranges(text: &str) -> Option<Vec<IdRange>> {
    let lines = text.lines().filter(|line| !line.trim().is_empty());
    lines
        .map(|line| {
            let mut fields = line.split_whitespace().skip(2);
            let (first, length) = (fields.next()?.parse().ok()?, fields.next()?.parse().ok()?);
            fields.next().is_none().then_some(IdRange { first, length })
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_are_read_line_by_line() {
        let two = "0: kubelet 65536 7208960\n1: kubelet 100000000 65536\n";
        let expected =
            [IdRange { first: 65_536, length: 7_208_960 }, IdRange { first: 100_000_000, length: 65_536 }];
        assert_eq!(ranges(two).unwrap(), expected);
        assert_eq!(ranges("").unwrap(), []);
    }

    #[test]
    fn invalid_getsubids_output_has_no_range() {
        for text in [
            "Error fetching ranges",
            "0: kubelet 65536",
            "0: kubelet a b",
            "0: kubelet 1 2 3",
            "0: kubelet -1 2",
        ] {
            assert_eq!(ranges(text), None, "{text}");
        }
    }

    #[tokio::test]
    async fn unknown_user_has_no_subordinate_ids() {
        assert_eq!(of("no-such-user-here").await.unwrap(), None);
    }
}
