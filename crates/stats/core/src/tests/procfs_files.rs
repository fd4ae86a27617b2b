//! Parsing of procfs files.

use super::*;

#[test]
fn procfs_is_read() {
    let dev = "Inter-|   Receive  |  Transmit\n face |bytes packets errs\n    lo: 1 1 0 0 0 0 0 0 1 1 0 0 0 0 0 0\n\
               \x20 eth0:3193 29 1 2 0 0 0 0 4000 30 3 4 0 0 0 0\nveth12: 1 1 0 0 0 0 0 0 1 1 0 0 0 0 0 0\nshort: 1\n";
    let all = procfs::interfaces(dev);
    let [eth0] = &*all else { panic!("{all:?}") };
    assert_eq!((&*eth0.name, eth0.rx_bytes, eth0.rx_packets, eth0.rx_errors), ("eth0", 3193, 29, 1));
    assert_eq!((eth0.rx_dropped, eth0.tx_bytes, eth0.tx_packets), (2, 4000, 30));
    assert_eq!((eth0.tx_errors, eth0.tx_dropped), (3, 4));
    let route = "Iface Destination Gateway\neth1 0000FEA9 0\neth0 00000000 0101A8C0\n";
    assert_eq!(procfs::default_interface(route), Some("eth0"));
    assert_eq!(procfs::meminfo("MemTotal:  24 kB\nMemFree: 3 kB\n", "MemFree"), Some(3072));
    let stat = "cpu  100 1 50 900 20 0 9 2 0 0\ncpu0 1 1 1\nbtime 1700000000\n";
    assert_eq!(procfs::cpu_times(stat), Some((1_600_000_000, 1_010_000_000, 590_000_000)));
    assert_eq!(procfs::boot_seconds(stat), Some(1_700_000_000));
    assert_eq!(procfs::running_tasks("0.1 0.2 0.3 2/310 4711\n"), Some(310));
    let process = "77 (a) b) S 1 77 77 0 -1 4194560 500 0 3 0 150 50 0 0 20 0 9 0 1234 100000 42 18446744073709551615 1";
    let process = procfs::process(process).expect("a process");
    assert_eq!((process.cpu_nanoseconds, process.threads), (2_000_000_000, 9));
    assert_eq!((process.minor_faults, process.major_faults, process.virtual_bytes), (500, 3, 100_000));
    assert_eq!(process.started_nanoseconds, 12_340_000_000);
    let limits = "Limit  Soft Limit  Hard Limit  Units\nMax open files            1024                 4096    files\n";
    assert_eq!(procfs::open_files_limit(limits), Some(1024));
    assert_eq!(procfs::open_files_limit("Max open files  unlimited unlimited files"), None);
    let limits = "Max address space         unlimited            unlimited            bytes\n";
    assert_eq!(procfs::address_space_limit(limits), Some(u64::MAX));
    let netstat = "TcpExt: A B\nTcpExt: 1 2\nIpExt: InNoRoutes InOctets OutOctets\nIpExt: 0 77 88\n";
    assert_eq!(procfs::ip_bytes(netstat), Some((77, 88)));
    let disks =
        procfs::disks("254 0 vda 10 1 80 5 20 2 160 7 0 9 12 0 0\n 7 0 loop0 0 0 0 0 0 0 0 0 0 0 0\n");
    assert_eq!(disks.len(), 1);
    assert_eq!((&*disks[0].name, disks[0].reads, disks[0].sectors_written), ("vda", 10, 160));
    for damaged in ["", "x", "cpu ", "1 (a"] {
        assert_eq!(procfs::cpu_times(damaged), None);
        assert_eq!(procfs::process(damaged), None);
        assert_eq!(procfs::running_tasks(damaged), None);
        assert_eq!(procfs::ip_bytes(damaged), None);
        assert_eq!(procfs::local_filesystems(damaged), []);
    }
}

#[test]
fn local_filesystems_are_those_of_the_machine_and_not_of_pods() {
    let mountinfo = "\
        22 1 254:0 / / rw,relatime shared:1 - ext4 /dev/vda rw\n\
        23 22 0:21 / /proc rw - proc proc rw\n\
        24 22 0:22 / /dev/shm rw - tmpfs tmpfs rw\n\
        25 22 254:0 /x /var/lib/kubelet/pods/u/volumes/kubernetes.io~local-volume/v rw - ext4 /dev/vda rw\n\
        26 22 0:30 / /var/lib/kubelet/pods/u/volumes/kubernetes.io~secret/s rw - tmpfs tmpfs rw\n\
        27 22 0:31 / /mnt/server rw - nfs4 server:/x rw\n\
        28 22 8:1 / /data\\040disk rw - xfs /dev/sda1 rw\n\
        29 22 8:2 / /srv rw - xfs /dev/sda2 rw\n";
    let expected = [("/dev/vda", "/"), ("/dev/shm", "/dev/shm"), ("/dev/sda2", "/srv")];
    assert_eq!(procfs::local_filesystems(mountinfo), expected);
    let many: String = (0..1000).map(|n| format!("1 1 8:{n} / /d{n} rw - ext4 /dev/d{n} rw\n")).collect();
    assert_eq!(procfs::local_filesystems(&many).len(), 64);
}
