//! Power cuts, failing writes and damage at every place: what was answered is there afterwards, and what was refused is not.

use std::io::{Error, ErrorKind};

use fixtures::rng::Rng;
use parking_lot::Mutex;
use redb::StorageBackend;
use serde_json::json;

use super::*;
use crate::store::{NotStored, Store, Write};

/// What was written and not synced.
#[derive(Clone, Debug)]
enum Pending {
    Bytes(usize, Vec<u8>),
    Length(usize),
}

fn apply(image: &mut Vec<u8>, pending: &Pending) {
    match pending {
        Pending::Length(length) => image.resize(*length, 0),
        Pending::Bytes(offset, bytes) => {
            image.resize(image.len().max(offset + bytes.len()), 0);
            image[*offset..offset + bytes.len()].copy_from_slice(bytes);
        }
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Fault {
    None,
    /// The call of this number and all later ones fail.
    Off(usize),
    /// The call of this number fails.
    Once(usize),
    /// The disk has no free block.
    Full,
}

#[derive(Debug)]
struct Medium {
    /// What a read sees.
    image: Vec<u8>,
    /// What is certain to be left after a power cut.
    synced: Vec<u8>,
    pending: Vec<Pending>,
    calls: usize,
    fault: Fault,
}

/// A disk in memory, of which each call can fail.
#[derive(Clone, Debug)]
struct MemoryDisk(Arc<Mutex<Medium>>);

impl MemoryDisk {
    fn with(image: Vec<u8>) -> Self {
        let synced = image.clone();
        Self(Arc::new(Mutex::new(Medium {
            image,
            synced,
            pending: Vec::new(),
            calls: 0,
            fault: Fault::None,
        })))
    }

    /// With a new database.
    fn initialised() -> Self {
        let disk = Self::with(Vec::new());
        let database = builder().create_with_backend(disk.clone()).unwrap();
        let identity = BTreeMap::from([("name".to_owned(), b"text".to_vec())]);
        initialise(&database, &Saved { revision: 1, identity, ..Saved::default() }, None).unwrap();
        drop(database);
        disk
    }

    fn image(&self) -> Vec<u8> {
        self.0.lock().image.clone()
    }

    fn fault(&self, fault: Fault) {
        let mut medium = self.0.lock();
        (medium.calls, medium.fault) = (0, fault);
    }

    /// What a power cut leaves: of each write that was not synced all, nothing, or its first sectors.
    fn after_power_cut(&self, rng: &mut Rng) -> Self {
        let medium = self.0.lock();
        let mut image = medium.synced.clone();
        for pending in &medium.pending {
            match (rng.below(3), pending) {
                (0, _) => {}
                (1, Pending::Bytes(offset, bytes)) => {
                    let kept = usize::try_from(rng.below(bytes.len() as u64 / 512 + 1)).unwrap() * 512;
                    apply(&mut image, &Pending::Bytes(*offset, bytes[..kept].to_vec()));
                }
                _ => apply(&mut image, pending),
            }
        }
        Self::with(image)
    }

    fn open(&self) -> Result<(Store, BTreeMap<String, Vec<u8>>), ReadError> {
        let medium = self.clone();
        let open = move || builder().create_with_backend(medium.clone());
        let (disk, mut saved) = Disk::open(Box::new(open), None)?;
        let identity = std::mem::take(&mut saved.identity);
        Ok((Store::on_disk(disk, saved, 100), identity))
    }

    fn call<T>(&self, takes_space: bool, work: impl FnOnce(&mut Medium) -> T) -> Result<T, Error> {
        let mut medium = self.0.lock();
        medium.calls += 1;
        match medium.fault {
            Fault::Off(from) if medium.calls >= from => Err(Error::other("no power")),
            Fault::Once(call) if medium.calls == call => Err(Error::other("a bad sector")),
            Fault::Full if takes_space => Err(Error::from(ErrorKind::StorageFull)),
            Fault::None | Fault::Off(_) | Fault::Once(_) | Fault::Full => Ok(work(&mut medium)),
        }
    }
}

impl StorageBackend for MemoryDisk {
    fn len(&self) -> Result<u64, Error> {
        Ok(self.0.lock().image.len() as u64)
    }

    fn read(&self, offset: u64, out: &mut [u8]) -> Result<(), Error> {
        let offset = usize::try_from(offset).unwrap();
        let medium = self.0.lock();
        let found =
            medium.image.get(offset..offset + out.len()).ok_or(Error::from(ErrorKind::UnexpectedEof))?;
        out.copy_from_slice(found);
        Ok(())
    }

    fn set_len(&self, length: u64) -> Result<(), Error> {
        let change = Pending::Length(usize::try_from(length).unwrap());
        self.call(true, |medium| {
            apply(&mut medium.image, &change);
            medium.pending.push(change);
        })
    }

    fn sync_data(&self) -> Result<(), Error> {
        self.call(false, |medium| {
            for pending in std::mem::take(&mut medium.pending) {
                apply(&mut medium.synced, &pending);
            }
        })
    }

    fn write(&self, offset: u64, data: &[u8]) -> Result<(), Error> {
        let change = Pending::Bytes(usize::try_from(offset).unwrap(), data.to_vec());
        self.call(true, |medium| {
            apply(&mut medium.image, &change);
            medium.pending.push(change);
        })
    }
}

fn key(name: &str) -> Key {
    Key::new("configmaps", "default", name)
}

/// Changes the object to this number, or removes it.
fn write(store: &Store, name: &str, number: Option<u64>) -> Result<Revision, NotStored> {
    let written = store.write::<NotStored>(&key(name), |_, current| {
        Ok(match (number, current) {
            (Some(number), _) => {
                Write::Put(json!({"metadata": {"name": name, "namespace": "default"}, "number": number}))
            }
            (None, Some(current)) => Write::Remove((**current).clone()),
            (None, None) => Write::Keep,
        })
    });
    written.map(|_| store.revision())
}

/// The objects with their numbers.
fn objects(store: &Store) -> BTreeMap<String, u64> {
    let listed = store.list("configmaps", None).objects;
    listed.into_iter().map(|(key, object)| (key.name, object.tree()["number"].as_u64().unwrap())).collect()
}

/// Creates, updates and removes objects in a fixed order.
fn change(store: &Store, step: u64) -> Result<Revision, NotStored> {
    let name = format!("object-{}", step * 7 % 5);
    write(store, &name, (step % 4 != 3).then_some(step))
}

const STEPS: u64 = 12;

/// What the steps up to this one leave.
fn expected(steps: u64) -> BTreeMap<String, u64> {
    let store = Store::new(1);
    for step in 0..steps {
        change(&store, step).unwrap();
    }
    objects(&store)
}

#[test]
fn database_is_read_as_it_was_written_and_revisions_go_on() {
    let disk = MemoryDisk::initialised();
    let (store, identity) = disk.open().unwrap();
    assert_eq!(identity["name"], b"text");
    let last = (0..STEPS).map(|step| change(&store, step).unwrap()).max().unwrap();
    drop(store);
    let (store, _) = disk.open().unwrap();
    assert_eq!((objects(&store), store.revision()), (expected(STEPS), last));
    assert_eq!(write(&store, "next", Some(1)).unwrap(), last + 1);
}

#[test]
fn power_cut_at_any_call_loses_no_answered_change_and_keeps_revisions_rising() {
    let image = MemoryDisk::initialised().image();
    let mut rng = Rng::new(39);
    for call in 1.. {
        let disk = MemoryDisk::with(image.clone());
        let (store, _) = disk.open().unwrap();
        disk.fault(Fault::Off(call));
        let answered: Vec<Revision> = (0..STEPS).map_while(|step| change(&store, step).ok()).collect();
        let steps = answered.len() as u64;
        drop(store);
        let (store, _) =
            disk.after_power_cut(&mut rng).open().unwrap_or_else(|error| panic!("call {call}: {error}"));
        let found = objects(&store);
        // The change that was under way may be there, too.
        let is_one_of = found == expected(steps) || found == expected((steps + 1).min(STEPS));
        assert!(is_one_of, "call {call}: {steps} changes were answered, found {found:?}");
        assert!(answered.iter().all(|revision| *revision <= store.revision()), "call {call}");
        if steps == STEPS {
            assert!(call > 50, "the disk was called at each step");
            return;
        }
    }
}

#[test]
fn change_that_failed_has_not_happened_also_on_disk() {
    let image = MemoryDisk::initialised().image();
    for call in 1.. {
        let disk = MemoryDisk::with(image.clone());
        let (store, _) = disk.open().unwrap();
        write(&store, "kept", Some(1)).unwrap();
        disk.fault(Fault::Once(call));
        let results = [write(&store, "kept", Some(2)), write(&store, "new", Some(3))];
        let mut wanted = BTreeMap::from([("kept".to_owned(), 1)]);
        for (name, number, result) in [("kept", 2, &results[0]), ("new", 3, &results[1])] {
            if result.is_ok() {
                wanted.insert(name.to_owned(), number);
            }
        }
        assert_eq!(objects(&store), wanted, "call {call}");
        disk.fault(Fault::None);
        let last = write(&store, "later", Some(4)).unwrap();
        wanted.insert("later".to_owned(), 4);
        drop(store);
        let (store, _) = disk.open().unwrap();
        assert_eq!((objects(&store), store.revision()), (wanted, last), "call {call}");
        if results.iter().all(Result::is_ok) {
            assert!(call > 8, "the disk was called at each step");
            return;
        }
    }
}

#[test]
fn full_disk_refuses_changes_with_its_reason_and_takes_them_again_once_it_has_space() {
    let disk = MemoryDisk::initialised();
    let (store, _) = disk.open().unwrap();
    let before = write(&store, "kept", Some(1)).unwrap();
    let mut watch = store.watch("configmaps", None, crate::store::From::Now).unwrap();
    disk.fault(Fault::Full);
    let error = write(&store, "new", Some(2)).unwrap_err();
    assert!(error.to_string().starts_with("failed to store the change: "), "{error}");
    assert_eq!(objects(&store), BTreeMap::from([("kept".to_owned(), 1)]));
    assert_eq!((store.revision(), watch.live.try_recv().is_err()), (before, true), "no watch has seen it");
    assert!(!store.takes_changes());
    disk.fault(Fault::None);
    assert_eq!(write(&store, "new", Some(3)).unwrap(), before + 1);
    assert!(store.takes_changes());
    assert_eq!(watch.live.try_event().unwrap().event().object["number"], 3);
}

#[test]
fn damaged_database_is_refused_or_read_as_it_was() {
    let disk = MemoryDisk::initialised();
    let (store, _) = disk.open().unwrap();
    for step in 0..STEPS {
        change(&store, step).unwrap();
    }
    drop(store);
    let (image, mut rng, mut refused) = (disk.image(), Rng::new(40), 0);
    // Most of the file is empty, so most places are those that are not.
    let used: Vec<usize> = (0..image.len()).filter(|place| image[*place] != 0).collect();
    for _ in 0..150 {
        let mut image = image.clone();
        image[*rng.pick(&used).unwrap()] ^= 1 << rng.below(8);
        match MemoryDisk::with(image).open() {
            Ok((store, _)) => assert_eq!(objects(&store), expected(STEPS)),
            Err(_) => refused += 1,
        }
    }
    assert!(refused > 5, "{refused} were refused, the others hit pages of earlier versions");
}

#[test]
fn file_is_made_whole_or_not_at_all_and_an_empty_one_is_damaged() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("objects.redb");
    let identify = || Ok::<_, DatabaseProblem>(BTreeMap::from([("name".to_owned(), b"text".to_vec())]));
    // Left by a start that was killed.
    std::fs::write(file.with_extension("new"), "half").unwrap();
    let (disk, saved) = open(&file, None, identify).unwrap();
    assert_eq!((saved.identity["name"].as_slice(), saved.revision), (b"text".as_slice(), 1));
    let mode = std::os::unix::fs::MetadataExt::mode(&std::fs::metadata(&file).unwrap());
    assert_eq!(mode & 0o777, 0o600);
    let second = open(&file, None, identify).unwrap_err();
    assert_eq!(second.to_string(), format!("another process uses {}", file.display()));
    drop(disk);
    std::fs::write(&file, "").unwrap();
    let error = open(&file, None, identify).unwrap_err().to_string();
    assert!(
        error.contains("objects.redb is damaged: it is empty")
            && error.contains("kubelet single-node restore"),
        "{error}"
    );
}

#[test]
fn secrets_are_sealed_on_disk_also_those_of_before_and_only_their_key_opens_them() {
    let disk = MemoryDisk::initialised();
    let secret = |name: &str| Key::new("secrets", "a", name);
    let put = |store: &Store, name: &str| {
        let object = json!({"metadata": {"name": name, "namespace": "a"}, "data": {"word": "c2VzYW1l"}});
        store.write(&secret(name), |_, _| Ok::<_, NotStored>(Write::Put(object))).unwrap();
    };
    let is_plain = |disk: &MemoryDisk| disk.image().windows(8).any(|part| part == b"c2VzYW1l");
    let (store, _) = disk.open().unwrap();
    put(&store, "before");
    drop(store);
    assert!(is_plain(&disk));

    let directory = tempfile::tempdir().unwrap();
    let seal = |name: &str| Some(Arc::new(Seal::of_file(&directory.path().join(name), true).unwrap()));
    let open = |seal| {
        let medium = disk.clone();
        Disk::open(Box::new(move || builder().create_with_backend(medium.clone())), seal)
    };
    let (own, saved) = open(seal("key")).unwrap();
    let store = Store::on_disk(own, saved, 10);
    put(&store, "after");
    drop(store);
    let (_, saved) = open(seal("key")).unwrap();
    let values: Vec<serde_json::Value> =
        saved.objects.values().map(|text| json::decode(text).unwrap()["data"]["word"].clone()).collect();
    assert_eq!(values, ["c2VzYW1l", "c2VzYW1l"]);
    for other in [seal("other"), None] {
        let error = open(other).map(drop).unwrap_err().to_string();
        assert!(error.contains("encrypted with another key"), "{error}");
    }
    let (database, _) = open(seal("key")).unwrap();
    let read = database.database.as_ref().unwrap().begin_read().unwrap();
    for entry in read.open_table(OBJECTS).unwrap().iter().unwrap() {
        assert!(seal::is_sealed(entry.unwrap().1.value()));
    }
}

#[test]
fn object_of_a_kind_of_a_newer_version_is_left_alone() {
    let disk = MemoryDisk::initialised();
    let database = builder().create_with_backend(disk.clone()).unwrap();
    let transaction = database.begin_write().unwrap();
    put(&transaction, "widgets/a/b", Some(&Text::from(b"{}".as_slice())), None).unwrap();
    transaction.commit().unwrap();
    drop(database);
    let (store, _) = disk.open().unwrap();
    write(&store, "other", Some(1)).unwrap();
    drop(store);
    let database = builder().create_with_backend(disk).unwrap();
    let read = database.begin_read().unwrap();
    assert!(read.open_table(OBJECTS).unwrap().get("widgets/a/b").unwrap().is_some());
}
