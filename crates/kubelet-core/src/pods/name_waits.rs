//! Which pods wait for another of their full name, and when that is reported: a pod is deleted by force, or its manifest is replaced, while
//! a container of it cannot be stopped.

use std::collections::BTreeMap;
use std::time::Duration;

use model::{MonoTime, PodRef, PodUid};

/// A shorter wait is not reported: most pods end sooner.
const REPORT_AFTER: Duration = Duration::from_secs(5);

/// The reason of the event.
pub const WAITING_FOR_PREVIOUS_POD: &str = "WaitingForPreviousPod";

/// The message of the event.
#[must_use]
pub fn message(behind: &PodUid) -> String {
    format!(
        "pod does not start before every container of the previous pod of this name has ended (UID {:?})",
        behind.as_str()
    )
}

/// The pods that waited when they were last observed.
#[derive(Clone, Debug, Default)]
pub struct NameWaits(BTreeMap<PodUid, Wait>);

#[derive(Clone, Debug)]
struct Wait {
    behind: PodUid,
    since: MonoTime,
    is_reported: bool,
}

impl NameWaits {
    /// `waiting` has each pod that waits, with the one that it waits for. Returns what is to be reported: every wait once.
    pub fn observe(&mut self, waiting: Vec<(PodRef, PodUid)>, now: MonoTime) -> Vec<(PodRef, PodUid)> {
        let mut known = std::mem::take(&mut self.0);
        let mut due = Vec::new();
        for (pod, behind) in waiting {
            let same = known.remove(&pod.uid).filter(|wait| wait.behind == behind);
            let mut wait =
                same.unwrap_or_else(|| Wait { behind: behind.clone(), since: now, is_reported: false });
            let is_due = !wait.is_reported && now.saturating_since(wait.since) >= REPORT_AFTER;
            wait.is_reported |= is_due;
            self.0.insert(pod.uid.clone(), wait);
            if is_due {
                due.push((pod, behind));
            }
        }
        due
    }
}

#[cfg(test)]
mod tests {
    use expect_test::{Expect, expect};

    use super::*;

    /// Each line is a time in seconds and the pods that wait then, like `5 b:a` for pod `b` that waits for `a`.
    #[track_caller]
    fn check(observations: &[&str], expected: Expect) {
        let mut waits = NameWaits::default();
        let mut lines = Vec::new();
        for line in observations {
            let mut words = line.split(' ');
            let at = MonoTime::from_start(Duration::from_secs(words.next().unwrap().parse().unwrap()));
            let waiting = words.map(|word| {
                let (pod, behind) = word.split_once(':').unwrap();
                (PodRef::new("ns", "web", pod), PodUid::from(behind))
            });
            let due = waits.observe(waiting.collect(), at);
            let due = due.iter().map(|(pod, behind)| format!(" {}:{}", pod.uid, behind.as_str()));
            lines.push(format!("{line} ->{}\n", due.collect::<String>()));
        }
        expected.assert_eq(&lines.concat());
    }

    #[test]
    fn wait_is_reported_once_after_five_seconds() {
        check(
            &["0 b:a", "4 b:a", "6 b:a", "8 b:a", "900 b:a"],
            expect![[r#"
                0 b:a ->
                4 b:a ->
                6 b:a -> b:a
                8 b:a ->
                900 b:a ->
            "#]],
        );
    }

    #[test]
    fn wait_that_ends_is_forgotten_and_another_one_is_reported() {
        check(
            &["0 b:a c:x", "6 b:a c:x", "8 c:y", "9 b:a c:y", "13 b:a c:y", "14 b:a c:y"],
            expect![[r#"
                0 b:a c:x ->
                6 b:a c:x -> b:a c:x
                8 c:y ->
                9 b:a c:y ->
                13 b:a c:y -> c:y
                14 b:a c:y -> b:a
            "#]],
        );
    }

    #[test]
    fn message_names_the_previous_pod() {
        expect![[r#"pod does not start before every container of the previous pod of this name has ended (UID "u-1")"#]]
            .assert_eq(&message(&PodUid::from("u-1")));
    }
}
