//! One script in, the last status out.

mod addresses;
mod ending;
mod init;
mod resources;
mod restarting;
mod shown;
mod starting;

use expect_test::Expect;

use super::scenario::{play, shown};

#[track_caller]
fn check(script: &str, expected: Expect) {
    let (_, played) = play(script);
    expected.assert_eq(&shown(played.last().expect("a scenario")));
}
