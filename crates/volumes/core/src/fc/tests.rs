use super::*;

fn owned(names: &[&str]) -> Vec<String> {
    names.iter().map(|name| (*name).to_owned()).collect()
}

fn lun(wwns: &[&str], lun: i32) -> FcDisk {
    FcDisk::Lun { wwns: owned(wwns), lun }
}

/// `fc_util_test.go` (TestParsePDName).
#[test]
fn global_mount_of_a_fibre_channel_disk_is_named_by_it_and_read_back() {
    let root = Path::new("/var/lib/kubelet");
    for (name, disk) in [
        ("60050763008084e6e0000000000001ae", FcDisk::Wwids(owned(&["60050763008084e6e0000000000001ae"]))),
        (
            "60050763008084e6e0000000000001ae-60050763008084e6e0000000000001af",
            FcDisk::Wwids(owned(&["60050763008084e6e0000000000001ae", "60050763008084e6e0000000000001af"])),
        ),
        ("50050768030539b6-lun-0", lun(&["50050768030539b6"], 0)),
        ("50050768030539b6-50050768030539b7-lun-0", lun(&["50050768030539b6", "50050768030539b7"], 0)),
    ] {
        let path = root.join("plugins/kubernetes.io/fc").join(name);
        assert_eq!(FcDisk::of_dir(&path), Ok(disk.clone()), "{name}");
        assert_eq!(disk.global_mount(root), path);
        let map = disk.block_map(root);
        assert_eq!(map.dir, root.join("plugins/kubernetes.io/fc/volumeDevices").join(name));
        assert_eq!(FcDisk::of_dir(&map.dir), Ok(disk));
    }
    let errors = ["/x/lun-0", "/x/50050768030539b6-lun-x"].map(|path| FcDisk::of_dir(Path::new(path)));
    assert_eq!(errors[0], Err("no wwn in: lun-0".to_owned()));
    assert!(errors[1].is_err());
}

/// `fc_test.go` (Test_getWwnsLun, Test_getWwids, Test_getWwnsLunWwidsError).
#[test]
fn fibre_channel_volume_names_ports_and_a_number_or_identifiers() {
    let (wwns, wwids) = (owned(&["500a0981891b8dc5"]), owned(&["3600508b400105e21 000900000490000"]));
    assert_eq!(FcDisk::of_source(&wwns, Some(0), &[]), Ok(lun(&["500a0981891b8dc5"], 0)));
    assert_eq!(FcDisk::of_source(&wwns, Some(0), &wwids), Ok(lun(&["500a0981891b8dc5"], 0)));
    let without_spaces = FcDisk::Wwids(owned(&["3600508b400105e21_000900000490000"]));
    assert_eq!(FcDisk::of_source(&[], None, &wwids), Ok(without_spaces.clone()));
    assert_eq!(FcDisk::of_source(&wwns, None, &wwids), Ok(without_spaces));
    for (wwns, lun) in [(&[][..], Some(0)), (&wwns, None), (&[], None)] {
        assert_eq!(
            FcDisk::of_source(wwns, lun, &[]),
            Err("fc: no fc disk information found. failed to make a new mounter".to_owned())
        );
    }
}

/// `fc_util_test.go` (TestSearchDisk, TestSearchDiskWWID).
#[test]
fn links_to_a_fibre_channel_disk_name_the_port_and_the_number_exactly() {
    let names = owned(&[
        "abc-0000:41:00.0-fc-0x5005076810213404-lun-0",
        "fc-0x5005076810213b32-lun-2",
        "fc-0x5005076810213b32-lun-25",
        "pci-0000:41:00.0-fc-0x500a0981891b8dc5-lun-0",
        "pci-0000:41:00.0-fc-0x500a0981891b8dc5-lun-1",
        "pci-0000:41:00.0-fc-0x500a0981891b8dc5-lun-12",
        "pci-0000:41:00.0-fc-0x500a0981891b8dc5-lun-1-part1",
    ]);
    for (disk, expected) in [
        (lun(&["500a0981891b8dc5"], 0), vec![vec!["pci-0000:41:00.0-fc-0x500a0981891b8dc5-lun-0"]]),
        (lun(&["500a0981891b8dc5"], 1), vec![vec!["pci-0000:41:00.0-fc-0x500a0981891b8dc5-lun-1"]]),
        (lun(&["5005076810213b32"], 2), vec![vec!["fc-0x5005076810213b32-lun-2"]]),
        (lun(&["5005076810213404"], 0), vec![vec![]]),
        (lun(&["500507681fffffff"], 0), vec![vec![]]),
        (
            lun(&["500507681fffffff", "5005076810213b32"], 25),
            vec![vec![], vec!["fc-0x5005076810213b32-lun-25"]],
        ),
    ] {
        assert_eq!(disk.links(&names), expected, "{disk:?}");
        assert_eq!(disk.links_dir(), Path::new("/dev/disk/by-path"));
    }
    let names = owned(&[
        "scsi-3600508b400105e210000900000490000",
        "scsi-3600508b400105e210000900000490000-part1",
        "wwn-0x600508b400105e21",
    ]);
    let disk = FcDisk::Wwids(owned(&["3600508b400105e210000900000490000"]));
    assert_eq!(disk.links(&names), [["scsi-3600508b400105e210000900000490000"]]);
    assert_eq!(disk.links_dir(), Path::new("/dev/disk/by-id"));
}

/// What `fc.go` (GetVolumeName) prints with `%v`.
#[test]
fn fibre_channel_volume_in_use_is_known_by_its_directory() {
    let (ports, ids) = (owned(&["a", "b"]), owned(&["VENDOR disk-1", "c"]));
    assert_eq!(unique_name(&ports, Some(3), &ids), "kubernetes.io/fc/[a b]:3");
    assert_eq!(unique_name(&ports, None, &ids), "kubernetes.io/fc/[VENDOR disk-1 c]");
    assert_eq!(unique_name_of(Path::new("/x/a-b-lun-3")).as_deref(), Some("kubernetes.io/fc/[a b]:3"));
    assert_eq!(unique_name_of(Path::new("/x/c")).as_deref(), Some("kubernetes.io/fc/[c]"));
    assert_eq!(unique_name_of(Path::new("/x/lun-3")), None);
    for (name, dir, expected) in [
        ("kubernetes.io/fc/[a b]:3", "/x/a-b-lun-3", true),
        ("kubernetes.io/fc/[a b]:3", "/x/a-b-lun-4", false),
        ("kubernetes.io/fc/[a b]", "/x/a-b-lun-3", false),
        ("kubernetes.io/fc/[VENDOR disk-1 c]", "/x/VENDOR_disk-1-c", true),
        ("kubernetes.io/iscsi/10.0.0.1:iqn.a:3", "/x/a-b-lun-3", false),
    ] {
        assert_eq!(has_dir(name, Path::new(dir)), expected, "{name} {dir}");
    }
}
