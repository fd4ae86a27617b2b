//! The ids set aside for a user's namespaces. `getsubids` is asked, because they may come from elsewhere than
//! `/etc/subuid`.

use std::io;
use std::path::Path;
use std::process::{Command, Stdio};

use model::request::IdRange;
use ports::host::{HostError, HostResult, SubordinateIds};

use crate::failed;

pub(crate) const PROGRAM: &str = "getsubids";

/// `None` if the program is missing or knows nothing of the user.
pub(crate) fn of(user: &str) -> HostResult<Option<SubordinateIds>> {
    let Some(uids) = ask(&[user])? else { return Ok(None) };
    let Some(gids) = ask(&["-g", user])? else { return Ok(None) };
    Ok(Some(SubordinateIds { uids, gids }))
}

fn ask(arguments: &[&str]) -> HostResult<Option<Vec<IdRange>>> {
    let output = match Command::new(PROGRAM).args(arguments).stdin(Stdio::null()).output() {
        Ok(output) => output,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(failed("run", Path::new(PROGRAM))(error)),
    };
    if !output.status.success() {
        return Ok(None);
    }
    let text = String::from_utf8_lossy(&output.stdout);
    match ranges(&text) {
        Some(ranges) => Ok(Some(ranges).filter(|ranges| !ranges.is_empty())),
        None => Err(HostError::Unfit(format!("{PROGRAM} {} answered {text:?}", arguments.join(" ")))),
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
    fn an_answer_that_is_something_else_is_no_range() {
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

    #[test]
    fn a_user_nobody_knows_has_none() {
        assert_eq!(of("no-such-user-here").unwrap(), None);
    }
}
