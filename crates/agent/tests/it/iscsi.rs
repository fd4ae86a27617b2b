//! Disks of iSCSI targets on a made-up machine: a stand-in for `iscsiadm`, and sysfs as the kernel fills it after a login.

use std::path::Path;

use fakes::{HostFault, HostMethod};
use model::k8s::{AttachedVolume, Secret};
use ports::Files;
use serde_json::{Value, json};

use crate::csi::from;
use crate::fibre_channel::{device_user, uid};
use crate::volumes::{count_events, user, with_claim};
use crate::world::{World, seconds};

const IQN: &str = "iqn.2014-12.com.example:test.tgt00";
const GLOBAL: &str = "/var/lib/kubelet/plugins/kubernetes.io/iscsi/iface-default/10.0.0.1:3260-iqn.2014-12.com.example:test.tgt00-lun-3";
const SESSION: &str = "/sys/class/iscsi_host/host2/device/session1";

/// A node with a claim on LUN 3 of the target, which the controller has attached.
async fn with_disk(more: Value) -> World {
    let mut source = json!({"targetPortal": "10.0.0.1", "iqn": IQN, "lun": 3});
    source.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    with_source(json!({"iscsi": source})).await
}

async fn with_source(source: Value) -> World {
    let world = with_claim(source).await;
    let mut node = world.node().unwrap();
    let name = format!("kubernetes.io/iscsi/10.0.0.1:{IQN}:3");
    node.status.get_or_insert_default().volumes_attached =
        Some(vec![AttachedVolume { name, device_path: String::new() }]);
    world.api().put(&node);
    world
}

/// The tools of the node. What the kernel shows appears with the login, and goes with the logout.
fn install_tools(world: &World) {
    // As open-iscsi 2.1.8 of Debian shows it, without the fields that are not read.
    let shown = "# BEGIN RECORD 2.1.8\niface.iscsi_ifacename = default\niface.net_ifacename = <empty>\niface.transport_name = tcp\n\
                 iface.initiatorname = <empty>\n# END RECORD\n";
    let host = &world.host;
    host.set_program("iscsiadm", Ok(shown)).set_program("fsck", Ok("")).set_program("mount", Ok(""));
    host.set_program("blkid", Ok("DEVNAME=/dev/sdx\nTYPE=ext4\n"));
    let connection = format!("{SESSION}/connection1:0/iscsi_connection/connection1:0");
    for (path, content) in [
        (format!("{SESSION}/iscsi_session/session1/targetname"), IQN),
        (format!("{connection}/address"), "10.0.0.1\n"),
        (format!("{connection}/port"), "3260\n"),
        (format!("{connection}/persistent_address"), "10.0.0.1\n"),
        (format!("{connection}/persistent_port"), "3260\n"),
        ("/sys/class/scsi_host/host2/scan".to_owned(), ""),
        (format!("{SESSION}/target2:0:0/2:0:0:3/block/sdx"), ""),
        ("/sys/block/sdx/device/delete".to_owned(), ""),
        (format!("/dev/disk/by-path/ip-10.0.0.1:3260-iscsi-{IQN}-lun-3"), ""),
    ] {
        host.put_when_run("--login", path, content);
    }
    host.delete_when_run("--logout", "/sys/class/iscsi_host");
}

fn calls(world: &World) -> Vec<String> {
    let calls = world.host.program_calls().into_iter().filter(|call| call.path.ends_with("iscsiadm"));
    calls.map(|call| call.args.join(" ")).collect()
}

fn count(world: &World, words: &str) -> usize {
    calls(world).iter().filter(|call| call.contains(words)).count()
}

fn in_use(world: &World) -> Vec<String> {
    world.node().unwrap().status.unwrap().volumes_in_use.unwrap_or_default()
}

#[tokio::test(start_paused = true)]
async fn iscsi_disk_is_logged_in_once_for_all_pods_and_logged_out_after_the_last() {
    let world = with_disk(json!({})).await;
    install_tools(&world);
    world.create(&user("one"));
    world.create(&user("two"));
    world.until("both run", |w| w.is_ready_in_api("one") && w.is_ready_in_api("two")).await;
    let discovery = "-m discoverydb -t sendtargets -p 10.0.0.1:3260 -I default";
    let node = format!("-m node -p 10.0.0.1:3260 -T {IQN} -I default");
    let expected = [
        "-m iface -I default -o show".to_owned(),
        format!("{discovery} -o new"),
        format!("{discovery} --discover"),
        format!("{node} -o update -n node.session.scan -v manual"),
        format!("{node} --login"),
        format!("-m node -p 10.0.0.1:3260 -T {IQN} -o update -n node.startup -v manual"),
    ];
    assert_eq!(calls(&world), expected);
    assert_eq!(world.host.text("/sys/class/scsi_host/host2/scan").as_deref(), Some("0 0 3"));
    let record = format!(
        "{{\"VolName\":\"pv\",\"Portals\":[\"10.0.0.1:3260\"],\"Iqn\":\"{IQN}\",\"Lun\":\"3\",\"InitIface\":\"default\",\"Iface\":\"default\",\
         \"InitiatorName\":\"\",\"MetricsProvider\":null}}\n"
    );
    assert_eq!(world.host.text(format!("{GLOBAL}/iscsi.json")), Some(record));
    assert!(world.host.mounts().contains(&format!("ext4 {GLOBAL}")), "{:?}", world.host.mounts());
    assert_eq!(in_use(&world), [format!("kubernetes.io/iscsi/10.0.0.1:{IQN}:3")]);

    world.delete("one", Some(1));
    world.until("one is gone", |w| !w.is_ready_in_api("one") && w.host.mounts().len() == 2).await;
    world.advance(seconds(10)).await;
    assert_eq!(count(&world, "--logout"), 0, "the other pod still uses it");
    world.delete("two", Some(1));
    world.until("it is logged out", |w| count(w, "--logout") == 1 && !w.host.exists(GLOBAL)).await;
    assert!(world.host.mounts().is_empty());
    assert_eq!(world.host.text("/sys/block/sdx/device/delete").as_deref(), Some("1"));
    let calls = calls(&world);
    let expected = [
        format!("-m node -p 10.0.0.1:3260 -T {IQN} --logout -I default"),
        format!("-m node -p 10.0.0.1:3260 -T {IQN} -o delete -I default"),
    ];
    assert_eq!(calls[calls.len() - 2..], expected);
    world.until("it is not in use", |w| in_use(w).is_empty()).await;
}

#[tokio::test(start_paused = true)]
async fn killed_kubelet_finds_the_iscsi_disk_of_a_pod_and_logs_out_after_it() {
    let mut world = with_disk(json!({})).await;
    install_tools(&world);
    world.create(&user("web"));
    world.until("it runs", |w| w.is_ready_in_api("web")).await;
    world.restart().await;
    world.until("it runs", |w| w.is_ready_in_api("web")).await;
    assert_eq!(count(&world, "--login"), 1);
    world.host.fault_below(HostMethod::RunProgram, "iscsiadm", HostFault::TimesOut);
    world.delete("web", Some(1));
    world.until("the disk is unmounted", |w| w.host.mounts().is_empty()).await;
    world.restart().await;
    world.until("it is logged out", |w| count(w, "--logout") > 0 && !w.host.exists(GLOBAL)).await;
}

#[tokio::test(start_paused = true)]
async fn iscsi_failures_name_the_tool_the_portal_and_the_volume() {
    let world = with_disk(json!({})).await;
    world.create(&user("web"));
    let text = "MountVolume.WaitForAttach failed for volume \"pv\" : exec: \"iscsiadm\": executable file not found in $PATH";
    world.until("the tool is missing", |w| count_events(w, "FailedMount", text) > 0).await;
    install_tools(&world);
    world.host.set_exit("--login", 8, "iscsiadm: initiator reported error (8 - connection timed out)");
    let text = "failed to get any path for iscsi disk, last err seen:\niscsi: failed to attach disk: Error: iscsiadm: initiator \
                reported error (8 - connection timed out) (exit status 8)";
    world.until("the login fails", |w| count_events(w, "FailedMount", text) > 0).await;
    assert!(count(&world, "-o delete") > 0, "the record of the target is deleted");
    world.delete("web", Some(1));
    world.until("nothing is left", |w| !w.host.exists(GLOBAL)).await;
}

#[tokio::test(start_paused = true)]
async fn iscsi_session_is_authenticated_with_the_secret_of_the_volume() {
    let chap = json!({"chapAuthSession": true, "secretRef": {"name": "chap", "namespace": "storage"}});
    let world = with_disk(chap).await;
    world.api().put(&from::<Secret>(json!({
        "metadata": {"name": "chap", "namespace": "storage"}, "type": "kubernetes.io/iscsi-chap",
        "data": {"node.session.auth.username": "dXNlcg==", "node.session.auth.password": "d29yZA=="},
    })));
    install_tools(&world);
    world.create(&user("web"));
    world.until("it runs", |w| w.is_ready_in_api("web")).await;
    let node = format!("-m node -p 10.0.0.1:3260 -T {IQN} -I default -o update -n node.session.auth");
    for set in ["authmethod -v CHAP", "username -v user", "password -v word"] {
        assert_eq!(count(&world, &format!("{node}.{set}")), 1, "{set}");
    }
}

#[tokio::test(start_paused = true)]
async fn iscsi_device_is_mapped_for_a_pod_and_logged_out_after_it() {
    let source = json!({"targetPortal": "10.0.0.1", "iqn": IQN, "lun": 3});
    let world = with_source(json!({"iscsi": source, "volumeMode": "Block"})).await;
    install_tools(&world);
    let link = format!("/dev/disk/by-path/ip-10.0.0.1:3260-iscsi-{IQN}-lun-3");
    world.host.put_device("/dev/sdx").set_program("losetup", Ok(""));
    // Replaces the file that stands for the disk.
    world.host.link_when_run("--login", &link, "/dev/sdx");
    world.create(&device_user("web"));
    world.until("it runs", |w| w.is_ready_in_api("web")).await;
    let map = GLOBAL.replace("/iscsi/", "/iscsi/volumeDevices/");
    let uid = uid(&world, "web");
    assert_eq!(world.host.mounts(), [format!("bind {map}/{uid}")]);
    assert!(world.host.exists(format!("{map}/iscsi.json")));
    assert!(!world.host.exists(GLOBAL));
    let pod_link = format!("/var/lib/kubelet/pods/{uid}/volumeDevices/kubernetes.io~iscsi/pv");
    assert_eq!(world.host.resolve(pod_link.as_ref()).await.unwrap(), Path::new("/dev/sdx"));

    world.delete("web", Some(1));
    world.until("it is logged out", |w| count(w, "--logout") == 1 && !w.host.exists(&map)).await;
    assert!(world.host.mounts().is_empty());
    world.until("it is not in use", |w| in_use(w).is_empty()).await;
}
