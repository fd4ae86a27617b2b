use super::*;
use crate::store::Key;

fn saved() -> Saved {
    let object = |name: &str| {
        stored::encode(&json!({"metadata": {"name": name}, "data": {"word": "b3Blbg=="}})).unwrap()
    };
    Saved {
        revision: 42,
        objects: [("configmaps", "settings"), ("secrets", "login")]
            .map(|(resource, name)| (Key::new(resource, "a", name), object(name)))
            .into(),
        identity: [
            ("authority.crt".to_owned(), b"public".to_vec()),
            ("tokens.key".to_owned(), b"private".to_vec()),
        ]
        .into(),
    }
}

fn seal() -> (tempfile::TempDir, Arc<Seal>) {
    let directory = tempfile::tempdir().unwrap();
    let seal = Seal::of_file(&directory.path().join("key"), true).unwrap();
    (directory, Arc::new(seal))
}

fn written(seal: Option<Arc<Seal>>) -> Vec<u8> {
    lines(saved(), seal, "2026-01-01T00:00:00Z".to_owned()).map(Result::unwrap).collect::<Vec<_>>().concat()
}

#[test]
fn backup_is_read_as_it_was_written() {
    let (_directory, seal) = seal();
    for seal in [None, Some(seal)] {
        let text = written(seal.clone());
        let read = read(text.as_slice(), seal.as_deref()).unwrap();
        assert_eq!((read.revision, &read.objects, &read.identity), (42, &saved().objects, &saved().identity));
    }
}

#[test]
fn secrets_and_keys_are_not_in_a_backup_in_plain_text() {
    let (_directory, seal) = seal();
    let text = String::from_utf8(written(Some(Arc::clone(&seal)))).unwrap();
    let private = STANDARD.encode("private");
    assert!(text.contains("settings") && text.contains(&STANDARD.encode("public")));
    assert!(!text.contains("\"name\":\"login\"") && !text.contains(&private), "{text}");
    let problem = read(text.as_bytes(), None).unwrap_err().to_string();
    assert!(problem.contains("encrypted with another key"), "{problem}");
}

#[test]
fn text_that_is_no_whole_backup_is_refused() {
    let text = written(None);
    let refused = |text: &[u8]| read(text, None).unwrap_err().to_string();
    assert!(refused(b"").contains("no backup") && refused(b"{}\n").contains("no backup"));
    assert!(refused(b"\xff\xfe").contains("no backup"));
    let newer = String::from_utf8(text.clone()).unwrap().replacen(
        "\"singleNodeBackup\":1",
        "\"singleNodeBackup\":2",
        1,
    );
    assert!(refused(newer.as_bytes()).contains("format 2"));
    let ends: Vec<usize> =
        text.iter().enumerate().filter(|(_, byte)| **byte == b'\n').map(|(at, _)| at + 1).collect();
    for end in &ends[..ends.len() - 1] {
        assert!(refused(&text[..*end]).contains("not complete"), "{end}");
    }
    let without_one: Vec<u8> = [&text[..ends[2]], &text[ends[3]..]].concat();
    assert!(refused(&without_one).contains("not complete"));
    let odd = [&text[..ends[0]], b"{\"key\":\"unknown/a/b\",\"object\":{}}\n"].concat();
    assert!(refused(&odd).starts_with("line 2"));
}
