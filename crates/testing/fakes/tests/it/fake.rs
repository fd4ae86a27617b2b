//! The contract over the fake, on paused time.

use std::sync::Arc;

use fakes::FakeRuntime;
use harness::containerd::BUSYBOX_IMAGE;

use crate::world::{Case, World};

pub(crate) fn fake() -> FakeRuntime {
    let fake = FakeRuntime::new();
    fake.image(BUSYBOX_IMAGE).write_logs();
    fake
}

async fn run(case: Case) {
    run_over(case, &fake()).await;
}

async fn run_over(case: Case, fake: &FakeRuntime) {
    let dir = tempfile::tempdir().unwrap();
    let world = World {
        runtime: Arc::new(fake.clone()),
        logs: dir.path().to_path_buf(),
        cgroup_root: "/kubelet-test".to_owned(),
        has_processes: false,
        fake: Some(fake.clone()),
    };
    case(world).await;
    assert_eq!(fake.double_starts(), Vec::<String>::new());
}

contract!(
    #[tokio::test(start_paused = true)]
    run
);

/// The same as CRI-O, which the recording shows.
mod like_crio {
    use super::{BUSYBOX_IMAGE, Case, FakeRuntime, run_over};

    async fn run(case: Case) {
        let fake = FakeRuntime::new();
        fake.like_crio().image(BUSYBOX_IMAGE).write_logs();
        run_over(case, &fake).await;
    }

    contract!(
        #[tokio::test(start_paused = true)]
        run
    );
}

/// The same case that is unimplemented elsewhere, with a runtime that offers events.
#[tokio::test(start_paused = true)]
async fn offered_hints_name_the_pod() {
    let dir = tempfile::tempdir().unwrap();
    let fake = fake();
    fake.offer_hints();
    let world = World {
        runtime: Arc::new(fake.clone()),
        logs: dir.path().to_path_buf(),
        cgroup_root: String::new(),
        has_processes: false,
        fake: Some(fake),
    };
    crate::cases::events_are_offered_or_unimplemented(&world).await;
}
