//! Text of kubectl without what differs between two runs: times, ages, UIDs, versions of objects, ports, names of temporary files, and the
//! widths of columns, which follow the ages.

/// What stands for the directory in which kubectl ran.
pub(super) const DIRECTORY: &str = "<dir>";
const ADDRESS: &str = "127.0.0.1:";
const UID_LENGTHS: [usize; 5] = [8, 4, 4, 4, 12];
/// Names of temporary files end with a random number.
const TEMPORARY: [&str; 3] = ["LIVE-", "MERGED-", "kubectl-edit-"];
/// Names that end with five random characters.
const GENERATED: [&str; 2] = ["debugger-", "kube-api-access-"];
/// Lines that name versions of programs.
const OF_THE_CLIENT: [&str; 2] = ["Client Version:", "Kustomize Version:"];

pub(super) fn text(text: &str) -> String {
    text.lines().map(|line| with_newline(&normal_line(line))).collect()
}

fn with_newline(line: &str) -> String {
    format!("{line}\n")
}

fn normal_line(line: &str) -> String {
    if let Some(name) = OF_THE_CLIENT.iter().find(|name| line.starts_with(**name)) {
        return (*name).to_owned();
    }
    let indentation = line.len() - line.trim_start().len();
    let line = without_log_prefix(line);
    let mut words: Vec<String> = line.split_whitespace().map(normal_word).collect();
    // The headers of a difference end with the time of the file.
    if matches!(words.first().map(String::as_str), Some("---" | "+++")) && line.contains(DIRECTORY) {
        words.truncate(2);
    }
    for at in 1..words.len() {
        if words[at - 1].trim_matches(['"', ':']) == "resourceVersion" {
            words[at] = words[at].replace(|c: char| c.is_ascii_digit(), "");
            words[at] = words[at].replace("\"\"", "\"<version>\"");
        }
    }
    while let Some(at) = words.iter().position(|word| word == "+0000").filter(|at| *at >= 5) {
        words.splice(at - 5..=at, ["<time>".to_owned()]);
    }
    format!("{}{}", " ".repeat(indentation), words.join(" "))
}

/// Without the level, time, process and place of a log line: `E1129 11:50:08.922825 31330 memcache.go:287] `.
fn without_log_prefix(line: &str) -> &str {
    let is_log = line.len() > 5
        && line.starts_with(['E', 'I', 'W'])
        && line.bytes().skip(1).take(4).all(|byte| byte.is_ascii_digit());
    let text = if is_log { line.split_once("] ").map(|(_, text)| text) } else { None };
    text.unwrap_or(line)
}

fn normal_word(word: &str) -> String {
    let is_edge = |c: char| "\"'(),;[]{}".contains(c);
    let core = word.trim_matches(is_edge).trim_end_matches(':');
    let new = with_generated_names(&with_names_of_files(&with_versions(&with_uids(&with_ports(
        &normal_core(core),
    )))));
    if core.is_empty() { word.to_owned() } else { word.replace(core, &new) }
}

fn normal_core(core: &str) -> String {
    if is_time(core) {
        "<time>".to_owned()
    } else if is_age(core) {
        "<age>".to_owned()
    } else if core.starts_with("eyJ") && core.len() > 100 {
        "<token>".to_owned()
    } else if let Some((name, _)) = core.split_once("X509SHA256=") {
        format!("{name}X509SHA256=<hash>")
    } else {
        core.to_owned()
    }
}

/// `2026-11-29T11:50:23Z`.
fn is_time(word: &str) -> bool {
    let is_like = |word: &str| {
        let shape = b"0000-00-00T00:00:00";
        word.len() > shape.len()
            && shape.iter().zip(word.bytes()).all(|(shape, byte)| match shape {
                b'0' => byte.is_ascii_digit(),
                other => *other == byte,
            })
    };
    is_like(word) && word.ends_with('Z')
}

/// An age of less than ten minutes: `7s`, `3m`, `2m5s`. One minute is `60s`, and amounts of CPU here are `10m` and more.
fn is_age(word: &str) -> bool {
    let is_number = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    match word.strip_suffix('s').map(|rest| rest.split_once('m').unwrap_or(("1", rest))) {
        Some((minutes, seconds)) => is_number(minutes) && is_number(seconds),
        None => word.strip_suffix('m').is_some_and(|minutes| minutes.len() == 1 && is_number(minutes)),
    }
}

fn with_ports(word: &str) -> String {
    match word.split_once(ADDRESS) {
        Some((before, after)) => {
            let rest = after.trim_start_matches(|c: char| c.is_ascii_digit());
            let port = if rest.len() < after.len() { "<port>" } else { "" };
            format!("{before}{ADDRESS}{port}{rest}")
        }
        None => word.to_owned(),
    }
}

fn with_uids(word: &str) -> String {
    let length = UID_LENGTHS.iter().sum::<usize>() + UID_LENGTHS.len() - 1;
    let is_uid = |text: &str| {
        let parts: Vec<&str> = text.split('-').collect();
        parts.iter().map(|part| part.len()).eq(UID_LENGTHS)
            && parts.iter().all(|part| part.bytes().all(|byte| byte.is_ascii_hexdigit()))
    };
    let found = (0..word.len()).find_map(|at| word.get(at..at + length).filter(|text| is_uid(text)));
    match found {
        Some(uid) => with_uids(&word.replace(uid, "<uid>")),
        None => word.to_owned(),
    }
}

/// `"resourceVersion":"12"` of JSON in one line.
fn with_versions(word: &str) -> String {
    const KEY: &str = "resourceVersion\":\"";
    match word.split_once(KEY) {
        Some((before, after)) => {
            let rest = after.trim_start_matches(|c: char| c.is_ascii_digit());
            let version = if rest.len() < after.len() { "<version>" } else { "" };
            format!("{before}{KEY}{version}{rest}")
        }
        None => word.to_owned(),
    }
}

fn with_names_of_files(word: &str) -> String {
    if !word.contains(DIRECTORY) {
        return word.to_owned();
    }
    TEMPORARY.iter().fold(word.to_owned(), |word, name| match word.split_once(name) {
        Some((before, after)) => {
            let rest = after.trim_start_matches(|c: char| c.is_ascii_digit());
            let number = if rest.len() < after.len() { "<number>" } else { "" };
            format!("{before}{name}{number}{rest}")
        }
        None => word,
    })
}

fn with_generated_names(word: &str) -> String {
    GENERATED.iter().fold(word.to_owned(), |word, name| match word.split_once(name) {
        Some((before, after)) => {
            let length = after.bytes().take_while(u8::is_ascii_alphanumeric).count();
            let (id, rest) = if length == 5 { ("<id>", &after[5..]) } else { ("", after) };
            format!("{before}{name}{id}{rest}")
        }
        None => word,
    })
}

#[test]
fn what_differs_between_two_runs_is_replaced() {
    for (line, wanted) in [
        ("web   0/1     Pending   0          2m3s", "web 0/1 Pending 0 <age>"),
        ("    cpu:        10m", "    cpu: 10m"),
        ("  creationTimestamp: \"2026-11-29T11:49:59Z\"", "  creationTimestamp: \"<time>\""),
        ("Created: Sun, 29 Nov 2026 11:50:23 +0000", "Created: <time>"),
        ("at https://127.0.0.1:26443.", "at https://127.0.0.1:<port>."),
        ("pvc-2786ccf0-58e9-4a7b-8790-5d914b266223", "pvc-<uid>"),
        ("E1129 11:50:08.922825   31330 memcache.go:287] \"Failed\"", "\"Failed\""),
        ("--- <dir>/LIVE-123/v1.x\t2026-11-29 11:49:59.62 +0000", "--- <dir>/LIVE-<number>/v1.x"),
        ("{\"resourceVersion\":\"12\",\"a\":1}", "{\"resourceVersion\":\"<version>\",\"a\":1}"),
        ("  resourceVersion: \"1778\"", "  resourceVersion: \"<version>\""),
        ("out of: web, debugger-thh8l (ephem)", "out of: web, debugger-<id> (ephem)"),
        ("status: {}", "status: {}"),
        ("Client Version: v1.36.4", "Client Version:"),
    ] {
        assert_eq!(normal_line(line), wanted);
        assert_eq!(normal_line(wanted), wanted, "a second time changes nothing");
    }
}
