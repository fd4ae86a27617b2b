use super::commands::*;
use super::*;
use std::collections::BTreeMap;

const IQN: &str = "iqn.2014-12.com.example:test.tgt00";

fn disk() -> IscsiDisk {
    IscsiDisk {
        vol_name: "pv0001".to_owned(),
        portals: vec![
            "127.0.0.1:3260".to_owned(),
            "127.0.0.1:3260".to_owned(),
            "127.0.0.100:3260".to_owned(),
        ],
        iqn: IQN.to_owned(),
        lun: "0".to_owned(),
        init_iface: "default".to_owned(),
        iface: "default".to_owned(),
        ..IscsiDisk::default()
    }
}

/// `iscsi_util_test.go` (TestExtractDeviceAndPrefix, TestExtractIface, TestExtractPortalAndIqn).
#[test]
fn global_mount_is_named_by_interface_portal_target_and_lun_and_read_back() {
    let root = Path::new("/var/lib/kubelet");
    let path = "/var/lib/kubelet/plugins/kubernetes.io/iscsi/iface-default/127.0.0.1:3260-iqn.2014-12.com.example:test.tgt00-lun-0";
    assert_eq!(disk().global_mount(root), Path::new(path));
    let map = path.replace("/iscsi/", "/iscsi/volumeDevices/");
    assert_eq!(disk().block_map(root).dir, Path::new(&map));
    for (device, portal, iqn) in [
        ("127.0.0.1:3260-iqn.2014-12.com.example:test.tgt00-lun-0", "127.0.0.1:3260", IQN),
        ("127.0.0.1:3260-eui.02004567A425678D-lun-0", "127.0.0.1:3260", "eui.02004567A425678D"),
        (
            "[2001:db8:0:f101::1]:3260-iqn.2014-12.com.example:test.tgt00-lun-0",
            "[2001:db8:0:f101::1]:3260",
            IQN,
        ),
    ] {
        let found =
            IscsiDisk::of_global_mount(&Path::new("/x/iface-192.168.1.10:pv0001").join(device)).unwrap();
        assert_eq!((&*found.portals, &*found.iqn, &*found.lun), (&[portal.to_owned()][..], iqn, "0"));
        assert_eq!(found.iface, "192.168.1.10:pv0001");
    }
    for other in
        ["/x/default/127.0.0.1:3260-iqn.a-lun-0", "/x/iface-default/other", "/x/iface-default/a-lun-0"]
    {
        assert_eq!(IscsiDisk::of_global_mount(Path::new(other)), None, "{other}");
    }
}

/// What Go's encoder makes of `iscsiDisk` in `iscsi.go`: the exported fields, and the embedded interface, which is nil.
#[test]
fn record_is_that_of_the_go_kubelet() {
    let text = concat!(
        r#"{"VolName":"pv0001","Portals":["127.0.0.1:3260","127.0.0.1:3260","127.0.0.100:3260"],"#,
        r#""Iqn":"iqn.2014-12.com.example:test.tgt00","Lun":"0","InitIface":"default","Iface":"default","InitiatorName":"","MetricsProvider":null}"#,
        "\n"
    );
    assert_eq!(disk().to_record(), text);
    assert_eq!(IscsiDisk::of_record(text.as_bytes()), Ok(disk()));
    assert_eq!(disk().distinct_portals(), ["127.0.0.1:3260", "127.0.0.100:3260"], "TestRemoveDuplicate");
    assert!(IscsiDisk::of_record(b"{").is_err());
}

#[test]
fn an_interface_of_its_own_is_named_by_portal_and_volume() {
    assert!(!disk().has_own_iface());
    let own = IscsiDisk {
        iface: own_iface("127.0.0.1:3260", "pv0001"),
        initiator_name: "iqn.2014-12.com.example:client".to_owned(),
        ..disk()
    };
    assert!(own.has_own_iface());
    assert!(!IscsiDisk { initiator_name: String::new(), ..own }.has_own_iface());
}

/// `TestPortalMounter` in `iscsi_test.go`, and `net.JoinHostPort`.
#[test]
fn portals_have_a_port_and_brackets_around_ipv6_addresses() {
    assert_eq!(with_port("127.0.0.1"), "127.0.0.1:3260");
    assert_eq!(with_port("127.0.0.1:3260"), "127.0.0.1:3260");
    assert_eq!(portal_of("192.168.30.7\n", "3260\n"), "192.168.30.7:3260");
    assert_eq!(portal_of("2001:db8::1", "3260"), "[2001:db8::1]:3260");
    assert_eq!(unique_name("10.0.0.1", IQN, "3"), format!("kubernetes.io/iscsi/10.0.0.1:{IQN}:3"));
}

/// `TestWaitForPathToExist`: a transport of an adapter has its PCI address in the name.
#[test]
fn device_is_found_by_path_and_by_any_pci_address_for_other_transports() {
    let device = device_name("127.0.0.1:3260", IQN, "0");
    assert_eq!(device, format!("ip-127.0.0.1:3260-iscsi-{IQN}-lun-0"));
    assert_eq!(device_name("[fd00::7]:3260", IQN, "1"), format!("ip-fd00::7:3260-iscsi-{IQN}-lun-1"));
    let pci = format!("pci-0000:00:00.0-{device}");
    let names = [format!("{device}-part1"), device.clone(), format!("{pci}-part1"), pci.clone()];
    assert_eq!(find_device(&names, "tcp", &device), Some(&*device));
    assert_eq!(find_device(&names, "cxgb4i", &device), Some(&*pci));
    assert_eq!(find_device(&names[..1], "tcp", &device), None);
}

/// `TestExtractTransportname`.
#[test]
fn transport_of_an_interface_is_tcp_if_it_is_empty_and_unknown_if_it_is_missing() {
    let shown = |line: &str| {
        format!(
            "# BEGIN RECORD 2.0-873\niface.iscsi_ifacename = default\n{line}iface.initiatorname = <empty>\n# END RECORD"
        )
    };
    assert_eq!(transport(&shown("iface.transport_name = tcp\n")), Some("tcp"));
    assert_eq!(transport(&shown("iface.transport_name = cxgb4i\n")), Some("cxgb4i"));
    assert_eq!(transport(&shown("iface.transport_name = <empty>\n")), Some("tcp"));
    assert_eq!(transport(&shown("")), None);
}

/// `TestParseIscsiadmShow` and `TestClonedIface`.
#[test]
fn settings_of_an_interface_leave_out_its_name_and_what_is_empty() {
    let shown = "# BEGIN RECORD 2.0-873\niface.iscsi_ifacename = default\niface.transport_name = tcp\niface.initiatorname = <empty>\n\
                 iface.mtu = 0\n# END RECORD\n";
    let expected = [("iface.mtu", "0"), ("iface.transport_name", "tcp")];
    let expected = expected.map(|(key, value)| (key.to_owned(), value.to_owned()));
    assert_eq!(settings(shown), Ok(BTreeMap::from(expected)));
    assert_eq!(
        settings("iface.transport_name =\n"),
        Err("error: invalid iface setting: [iface.transport_name =]".to_owned())
    );
}

/// The argument lists of `AttachDisk`, `updateISCSIDiscoverydb`, `updateISCSINode` and `detachISCSIDisk` in `iscsi_util.go`.
#[test]
fn arguments_of_iscsiadm_are_those_of_the_go_kubelet() {
    let at = Portal { portal: "127.0.0.1:3260", iqn: IQN, iface: "default" };
    let line = |args: Vec<String>| args.join(" ");
    let discovery = "-m discoverydb -t sendtargets -p 127.0.0.1:3260 -I default";
    let node = format!("-m node -p 127.0.0.1:3260 -T {IQN} -I default");
    assert_eq!(line(iface("default", "show")), "-m iface -I default -o show");
    assert_eq!(line(at.discovery("new")), format!("{discovery} -o new"));
    assert_eq!(line(at.discover()), format!("{discovery} --discover"));
    assert_eq!(line(at.scan_manually()), format!("{node} -o update -n node.session.scan -v manual"));
    assert_eq!(line(at.login()), format!("{node} --login"));
    assert_eq!(line(at.discard_node()), format!("-m node -p 127.0.0.1:3260 -I default -T {IQN} -o delete"));
    let startup = format!("-m node -p 127.0.0.1:3260 -T {IQN} -o update -n node.startup -v manual");
    assert_eq!(line(at.start_manually()), startup);
    assert_eq!(line(at.logout()), format!("-m node -p 127.0.0.1:3260 -T {IQN} --logout -I default"));
    assert_eq!(line(at.delete_node()), format!("-m node -p 127.0.0.1:3260 -T {IQN} -o delete -I default"));
    let secret = [
        ("discovery.sendtargets.auth.username", "finder"),
        ("node.session.auth.username", "user"),
        ("node.session.auth.password", "word"),
        ("node.session.auth.password_in", ""),
    ];
    let secret = secret.map(|(key, value)| (key.to_owned(), value.to_owned())).into();
    let lines = |all: Vec<Vec<String>>| all.into_iter().map(line).collect::<Vec<_>>();
    assert_eq!(
        lines(at.authenticate_discovery(&secret)),
        [
            format!("{discovery} -o update -n discovery.sendtargets.auth.authmethod -v CHAP"),
            format!("{discovery} -o update -n discovery.sendtargets.auth.username -v finder"),
        ]
    );
    assert_eq!(
        lines(at.authenticate_session(&secret)),
        [
            format!("{node} -o update -n node.session.auth.authmethod -v CHAP"),
            format!("{node} -o update -n node.session.auth.username -v user"),
            format!("{node} -o update -n node.session.auth.password -v word"),
        ]
    );
    assert!(is_absent(Some(21)) && is_absent(Some(2)) && !is_absent(Some(0)) && !is_absent(None));
}

/// The constants of `iscsi_util.go`: all paths, or two after two attempts, or one after five.
#[test]
fn a_disk_with_several_portals_waits_for_all_paths_but_not_forever() {
    use AfterAttempt::*;
    for (attempt, found, portals, expected) in [
        (1, 0, 1, Fail),
        (1, 1, 1, Mount),
        (1, 1, 2, TryOthers),
        (4, 1, 2, TryOthers),
        (5, 1, 2, Mount),
        (1, 2, 3, TryOthers),
        (2, 2, 3, Mount),
        (1, 3, 3, Mount),
    ] {
        assert_eq!(after_attempt(attempt, found, portals), expected, "{attempt} {found} {portals}");
    }
}
