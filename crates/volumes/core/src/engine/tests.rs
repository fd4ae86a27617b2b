use std::fmt::Write;

use model::MonoTime;

use super::*;

const fn at(millis: u64) -> MonoTime {
    MonoTime::from_start(Duration::from_millis(millis))
}

fn ready() -> Attempt {
    Attempt::Ready(ReadyVolume::at("/v".into()))
}

fn want(names: &[&str]) -> VolumeEvent {
    VolumeEvent::Wanted { volumes: names.iter().map(|name| Box::from(*name)).collect(), is_retried: true }
}

fn refresh(names: &[&str]) -> VolumeEvent {
    VolumeEvent::Wanted { volumes: names.iter().map(|name| Box::from(*name)).collect(), is_retried: false }
}

fn made(name: &str, attempt: Attempt) -> VolumeEvent {
    VolumeEvent::MountEnded { volume: name.into(), attempt }
}

/// The reaction to each event, one line each.
fn scenario(events: Vec<(u64, VolumeEvent)>) -> String {
    let (mut pod, mut lines) = (PodVolumes::default(), String::new());
    for (millis, event) in events {
        let reaction = pod.on_event(event, at(millis));
        write!(lines, "{millis}:").unwrap();
        for act in &reaction.acts {
            match act {
                VolumeAct::Mount { volume, is_uncertain: false } => write!(lines, " mount {volume}").unwrap(),
                VolumeAct::Mount { volume, is_uncertain: true } => {
                    write!(lines, " clear and mount {volume}").unwrap()
                }
                VolumeAct::TearDown => lines.push_str(" tear down"),
            }
        }
        if let Some(verdict) = &reaction.verdict {
            write!(lines, " {verdict:?}").unwrap();
        }
        if let Some(wake) = reaction.wake_at {
            write!(lines, " until {}", wake.saturating_since(at(0)).as_millis()).unwrap();
        }
        lines.push('\n');
    }
    lines
}

#[test]
fn volumes_are_set_up_in_parallel_and_reported_ready_once() {
    let lines = scenario(vec![(0, want(&["a", "b"])), (10, made("b", ready())), (20, made("a", ready()))]);
    assert_eq!(lines, "0: mount a mount b until 123000\n10: until 123000\n20: Ready\n");
}

#[test]
fn failed_volume_backs_off_without_delaying_the_others() {
    let lines = scenario(vec![
        (0, want(&["a", "b"])),
        (10, made("a", Attempt::Failed)),
        (11, made("b", ready())),
        (510, VolumeEvent::Wake),
        (520, made("a", Attempt::Failed)),
        (1520, VolumeEvent::Wake),
        (1530, made("a", ready())),
    ]);
    assert_eq!(
        lines,
        "0: mount a mount b until 123000\n10: until 510\n11: until 510\n510: mount a until 123000\n\
         520: until 1520\n1520: mount a until 123000\n1530: Ready\n"
    );
}

#[test]
fn volume_back_off_doubles_from_half_a_second_to_two_minutes_and_two_seconds() {
    let waits: Vec<u128> = (1..=11).map(|failures| wait_after(failures).as_millis()).collect();
    assert_eq!(waits, [500, 1000, 2000, 4000, 8000, 16000, 32000, 64000, 122_000, 122_000, 122_000]);
    assert_eq!(wait_after(u32::MAX), LONGEST_WAIT);
}

#[test]
fn volume_wait_times_out_with_the_unmounted_volumes_and_keeps_the_back_off() {
    let lines = scenario(vec![
        (0, want(&["a", "b", "c"])),
        (1, made("b", ready())),
        (122_999, made("c", Attempt::Failed)),
        (123_000, VolumeEvent::Wake),
        (124_000, want(&["a", "b", "c"])),
        (124_001, made("b", ready())),
        (124_002, made("c", ready())),
        (124_003, made("a", ready())),
        (124_004, made("a", ready())),
    ]);
    assert_eq!(
        lines,
        "0: mount a mount b mount c until 123000\n1: until 123000\n122999: until 123000\n\
         123000: TimedOut([\"a\", \"c\"])\n\
         124000: mount b mount c until 247000\n124001: until 247000\n124002: until 247000\n124003: mount a until 247000\n\
         124004: Ready\n"
    );
}

#[test]
fn texts_of_a_wait_that_timed_out_name_the_volumes() {
    let names = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect::<Vec<_>>();
    assert_eq!(
        timed_out(&names(&["a", "c"]), &[]),
        "Unable to attach or mount volumes: unmounted volumes=[a c], unattached volumes=[], \
         failed to process volumes=[]: timed out waiting for the condition"
    );
    assert_eq!(
        node_is_full(&names(&["a", "c"]), &names(&["c"])),
        "Node has reached its volume attachment limit, rejecting pod. unmounted volumes=[a c], \
         unattached volumes=[c], failed to process volumes=[]: timed out waiting for the condition"
    );
}

#[test]
fn leftovers_of_a_timed_out_setup_are_cleared_before_the_retry() {
    let lines = scenario(vec![
        (0, want(&["nfs"])),
        (1, made("nfs", Attempt::Unknown)),
        (2, VolumeEvent::Changed),
        (501, VolumeEvent::Wake),
        (600, made("nfs", Attempt::Failed)),
        (1600, VolumeEvent::Wake),
    ]);
    assert_eq!(
        lines,
        "0: mount nfs until 123000\n1: until 501\n2: until 501\n501: clear and mount nfs until 123000\n\
         600: until 1600\n1600: mount nfs until 123000\n"
    );
}

#[test]
fn unresolvable_volume_is_reported_at_once() {
    let why = "error processing PVC default/data: PVC is not bound";
    let lines = scenario(vec![
        (0, want(&["a", "data"])),
        (5, made("data", Attempt::Refused(why.to_owned()))),
        (6, made("a", ready())),
        (1000, want(&["a", "data"])),
    ]);
    assert_eq!(
        lines,
        "0: mount a mount data until 123000\n\
         5: Missing(\"Unable to attach or mount volumes: unmounted volumes=[a data], unattached volumes=[], \
         failed to process volumes=[data]: error processing PVC default/data: PVC is not bound\")\n6:\n\
         1000: mount a mount data until 124000\n"
    );
}

#[test]
fn object_change_ends_the_back_off_and_repeats_a_setup_under_way() {
    let lines = scenario(vec![
        (0, want(&["cfg"])),
        (10, made("cfg", Attempt::Failed)),
        (20, VolumeEvent::Changed),
        (30, VolumeEvent::Changed),
        (40, made("cfg", ready())),
        (50, made("cfg", ready())),
    ]);
    assert_eq!(
        lines,
        "0: mount cfg until 123000\n10: until 510\n20: mount cfg until 123000\n30: until 123000\n\
         40: mount cfg until 123000\n50: Ready\n"
    );
}

#[test]
fn refresh_tries_each_volume_once() {
    let lines = scenario(vec![
        (0, refresh(&["a", "b"])),
        (1, made("a", Attempt::Failed)),
        (2, made("b", ready())),
        (3, refresh(&["b"])),
        (4, made("b", ready())),
        (5, refresh(&["a"])),
        (501, refresh(&["a"])),
    ]);
    assert_eq!(
        lines,
        "0: mount a mount b\n1: until 501\n2: Tried\n3: mount b\n4: Ready\n5: Tried\n501: mount a\n"
    );
}

#[test]
fn volumes_are_torn_down_only_when_no_setup_is_under_way() {
    let lines = scenario(vec![
        (0, want(&["a", "b"])),
        (1, made("a", ready())),
        (2, VolumeEvent::NoWaiter),
        (3, VolumeEvent::Unwanted),
        (4, made("b", Attempt::Unknown)),
        (5, VolumeEvent::TearDownEnded { is_gone: false }),
        (6, VolumeEvent::Unwanted),
        (505, VolumeEvent::Wake),
        (506, VolumeEvent::TearDownEnded { is_gone: true }),
    ]);
    assert_eq!(
        lines,
        "0: mount a mount b until 123000\n1: until 123000\n2:\n3:\n4: tear down\n5: Stuck\n6: until 505\n\
         505: tear down\n506: Gone\n"
    );
}

#[test]
fn returning_pod_is_mounted_after_its_unmount() {
    let lines = scenario(vec![
        (0, VolumeEvent::Unwanted),
        (1, want(&["a"])),
        (2, VolumeEvent::TearDownEnded { is_gone: true }),
        (3, made("a", ready())),
    ]);
    assert_eq!(lines, "0: tear down\n1: until 123001\n2: mount a until 123001\n3: Ready\n");
}

#[test]
fn volumes_beyond_the_limit_wait_for_the_end_of_an_act_without_a_wake() {
    let names: Vec<String> = (0..100).map(|i| format!("v{i:03}")).collect();
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    let mount = |name: &str| VolumeAct::Mount { volume: name.into(), is_uncertain: false };
    let mut pod = PodVolumes::default();
    let mut acts = pod.on_event(want(&names), at(0)).acts;
    assert_eq!(acts, names[..64].iter().map(|name| mount(name)).collect::<Vec<_>>());
    let next = pod.on_event(made("v000", Attempt::Failed), at(10));
    assert_eq!(next.acts, [mount("v064")]);
    // Its back-off has ended, but as many as may be are under way.
    let woken = pod.on_event(VolumeEvent::Wake, at(510));
    assert_eq!((woken.acts, woken.wake_at), (Vec::new(), Some(at(123_000))));
    acts.remove(0);
    acts.extend(next.acts);
    let (mut verdict, mut mounted) = (None, 0);
    while let Some(VolumeAct::Mount { volume, .. }) = acts.pop() {
        let reaction = pod.on_event(VolumeEvent::MountEnded { volume, attempt: ready() }, at(600));
        acts.extend(reaction.acts);
        assert!(acts.len() <= 64);
        (verdict, mounted) = (reaction.verdict, mounted + 1);
    }
    assert_eq!((verdict, mounted), (Some(Verdict::Ready), 100));
}

/// A small generator of its own: the scenarios are the same in every run.
struct Dice(u64);

impl Dice {
    fn roll(&mut self, sides: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % sides
    }
}

/// One random scenario: acts end at random times with random results, workers come and go. Returns how many acts it had.
fn random_scenario(seed: u64) -> usize {
    let (mut dice, mut pod, mut now) = (Dice(seed), PodVolumes::default(), 0);
    let names: [Box<str>; 3] = ["a".into(), "b".into(), "c".into()];
    let mut uncertain: Vec<Box<str>> = Vec::new();
    let (mut under_way, mut tearing_down, mut count): (Vec<Box<str>>, bool, usize) = (Vec::new(), false, 0);
    for _ in 0..200 {
        now += dice.roll(3000);
        let event = match dice.roll(8) {
            0 => want(&["a", "b", "c"]),
            1 => refresh(&["a", "c"]),
            2 => VolumeEvent::Unwanted,
            3 => VolumeEvent::Changed,
            4 => VolumeEvent::NoWaiter,
            5 | 6 if tearing_down => {
                tearing_down = false;
                let is_gone = dice.roll(2) == 0;
                if is_gone {
                    uncertain.clear();
                }
                VolumeEvent::TearDownEnded { is_gone }
            }
            5 | 6 if !under_way.is_empty() => {
                let index = usize::try_from(dice.roll(under_way.len() as u64)).unwrap();
                let volume = under_way.swap_remove(index);
                let attempt = match dice.roll(4) {
                    0 => Attempt::Failed,
                    1 => {
                        uncertain.push(volume.clone());
                        Attempt::Unknown
                    }
                    2 => Attempt::Refused("no".to_owned()),
                    _ => ready(),
                };
                VolumeEvent::MountEnded { volume, attempt }
            }
            _ => VolumeEvent::Wake,
        };
        let reaction = pod.on_event(event, at(now));
        for act in reaction.acts {
            count += 1;
            match act {
                VolumeAct::Mount { volume: name, is_uncertain } => {
                    assert_eq!(
                        is_uncertain,
                        uncertain.contains(&name),
                        "seed {seed}: what is uncertain is removed first"
                    );
                    uncertain.retain(|uncertain| *uncertain != name);
                    assert!(names.contains(&name));
                    assert!(!tearing_down, "seed {seed}: mounted while torn down");
                    assert!(!under_way.contains(&name), "seed {seed}: two acts on one volume");
                    under_way.push(name);
                }
                VolumeAct::TearDown => {
                    assert!(under_way.is_empty(), "seed {seed}: torn down while mounted");
                    assert!(!tearing_down, "seed {seed}: torn down twice");
                    tearing_down = true;
                }
            }
        }
        assert_eq!(pod.is_busy(), tearing_down || !under_way.is_empty(), "seed {seed}");
    }
    // Whatever happened: once acts succeed, the worker is answered.
    let mut acts = Vec::new();
    if tearing_down {
        acts.extend(pod.on_event(VolumeEvent::TearDownEnded { is_gone: true }, at(now)).acts);
    }
    acts.extend(under_way.into_iter().map(|volume| VolumeAct::Mount { volume, is_uncertain: false }));
    let mut reaction = pod.on_event(want(&["a", "b", "c"]), at(now));
    acts.append(&mut reaction.acts);
    while reaction.verdict.is_none() {
        reaction = match acts.pop() {
            Some(VolumeAct::Mount { volume: name, .. }) => pod.on_event(made(&name, ready()), at(now)),
            Some(VolumeAct::TearDown) => panic!("seed {seed}: torn down without a request"),
            None => {
                let wake = reaction.wake_at.expect("a time to wake");
                now = u64::try_from(wake.saturating_since(at(0)).as_millis()).unwrap();
                pod.on_event(VolumeEvent::Wake, at(now))
            }
        };
        acts.append(&mut reaction.acts);
    }
    assert_eq!(reaction.verdict, Some(Verdict::Ready), "seed {seed}: {pod:?}");
    count
}

#[test]
fn invariants_hold_in_random_scenarios() {
    let acts: usize = (0..500).map(random_scenario).sum();
    assert!(acts > 10_000, "{acts} acts are too few");
}
