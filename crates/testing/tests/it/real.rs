use std::time::Duration;

use ports::Runtime;
use testing::Containerd;
use testing::containerd::leftovers;

#[tokio::test(flavor = "multi_thread")]
async fn starts_and_leaves_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let containerd = Containerd::start(dir.path()).await.unwrap();
    let cri = cri::CriRuntime::new(&containerd.endpoint(), "", Duration::from_secs(10)).unwrap();
    println!("{:?}", cri.version().await);
    println!("{:?}", cri.status().await);
    println!("{:?}", cri.cgroup_driver().await);
    println!("{:?}", cri.list_images().await);
    println!("{:?}", cri.hints().await.err());
    containerd.stop().unwrap();
    assert_eq!(leftovers(dir.path()), Vec::<String>::new());
}
