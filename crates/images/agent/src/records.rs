//! Pull records: files with the images that were pulled, and with which credentials (docs/behaviour/images.md).
//!
//! One task owns the files below `<root>/image_manager` and executes one command after another, which other tasks send. It
//! cleans up whenever the images were listed for garbage collection. Records are interpreted in
//! `images_core::access`.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use base_agent::error_chain::chain;
use base_agent::metrics::Metrics;
use base_agent::tasks::TaskSet;
use images_core::access::{
    ImagePullCredentials, ImagePullIntent, ImagePulledRecord, PodCredentials, find_image, is_outlived,
    parse_record_file, record_credentials, record_file, record_pull, record_unknown,
};
use images_core::name::spellings;
use jiff::Timestamp;
use model::k8s::Time;
use model::request::ImageObservation;
use parking_lot::Mutex;
use ports::{Clock, Files, HostError};
use tokio::sync::{mpsc, oneshot};

use crate::metrics::ImageMetrics;

/// Commands that may wait; the sender of the next one waits.
const WAITING: usize = 64;
/// Records are a few kilobytes at most: a hundred credentials for each name of the image.
const MAX_BYTES: usize = 1 << 20;

/// The records of an image.
#[derive(Clone, Debug, Default)]
pub struct KnownPull {
    pub record: Option<ImagePulledRecord>,
    /// A pull was begun whose end was not recorded, or the record cannot be read.
    pub was_intended: bool,
}

#[derive(Debug)]
enum Command {
    Lookup {
        image: String,
        image_ref: String,
        answer: oneshot::Sender<KnownPull>,
    },
    Intend {
        image: String,
        answer: oneshot::Sender<Result<(), String>>,
    },
    /// The pull failed for certain.
    Forget {
        image: String,
    },
    Pulled {
        image: String,
        image_ref: String,
        with: PodCredentials,
        answer: oneshot::Sender<()>,
    },
    Record {
        image: String,
        image_ref: String,
        credentials: ImagePullCredentials,
    },
    /// The images of the runtime at that time.
    Listed {
        listed_at: Timestamp,
        images: Vec<ImageObservation>,
    },
}

/// Pulls of one image whose end was not recorded.
#[derive(Debug, Default)]
struct Open {
    under_way: usize,
    /// The end of one of them is unknown, perhaps because the kubelet restarted. Only a list of images settles it.
    is_unsettled: bool,
}

/// By image, without pulls that have ended and are settled.
#[derive(Debug, Default)]
struct OpenPulls(Mutex<BTreeMap<String, Open>>);

impl OpenPulls {
    fn change(&self, image: &str, change: impl FnOnce(&mut Open)) {
        let mut all = self.0.lock();
        let open = all.entry(image.to_owned()).or_default();
        change(open);
        if open.under_way == 0 && !open.is_unsettled {
            all.remove(image);
        }
    }

    fn is_open(&self, image: &str) -> bool {
        self.0.lock().contains_key(image)
    }

    fn is_under_way(&self, image: &str) -> bool {
        self.0.lock().get(image).is_some_and(|open| open.under_way > 0)
    }
}

/// Handle of the task; clones share it.
#[derive(Clone, Debug)]
pub(super) struct PullRecords {
    commands: mpsc::Sender<Command>,
    open: Arc<OpenPulls>,
}

impl PullRecords {
    /// Creates the directories and starts the task.
    pub(super) async fn start(
        files: Arc<dyn Files>,
        clock: Clock,
        root: &Path,
        metrics: Metrics,
        tasks: &TaskSet,
    ) -> Result<Self, HostError> {
        let base = root.join("image_manager");
        let (pulling, pulled) = (base.join("pulling"), base.join("pulled"));
        for dir in [&base, &pulling, &pulled] {
            files.ensure_dir(dir, 0o700).await?;
        }
        let (commands, received) = mpsc::channel(WAITING);
        let open = Arc::new(OpenPulls::default());
        let keeper = PullRecordsTask { files, clock, metrics, pulling, pulled, open: open.clone() };
        tasks.spawn("pull records", keeper.run(received));
        Ok(Self { commands, open })
    }

    /// The records of an image; empty if the task has ended, as the process does then.
    pub(super) async fn lookup(&self, image: &str, image_ref: &str) -> KnownPull {
        let (answer, known) = oneshot::channel();
        let (image, image_ref) = (image.to_owned(), image_ref.to_owned());
        let _ = self.commands.send(Command::Lookup { image, image_ref, answer }).await;
        known.await.unwrap_or(KnownPull { record: None, was_intended: true })
    }

    /// Writes the intent before a pull. Its outcome is to be reported to the returned value.
    pub(super) async fn intend(&self, image: &str) -> Result<Intent, String> {
        self.open.change(image, |open| open.under_way += 1);
        let intent = Intent { records: self.clone(), image: image.to_owned(), is_known: false };
        let (answer, done) = oneshot::channel();
        let _ = self.commands.send(Command::Intend { image: image.to_owned(), answer }).await;
        done.await.unwrap_or_else(|_| Err("the kubelet is shutting down".to_owned()))?;
        Ok(intent)
    }

    pub(super) async fn record_listing(&self, listed_at: Timestamp, images: Vec<ImageObservation>) {
        let _ = self.commands.send(Command::Listed { listed_at, images }).await;
    }

    pub(super) async fn record(&self, image: &str, image_ref: &str, credentials: ImagePullCredentials) {
        let (image, image_ref) = (image.to_owned(), image_ref.to_owned());
        let _ = self.commands.send(Command::Record { image, image_ref, credentials }).await;
    }
}

/// A pull under way. If it is dropped without an outcome, the file stays, because the image may have been pulled.
#[derive(Debug)]
pub(super) struct Intent {
    records: PullRecords,
    image: String,
    /// Whether an outcome was reported.
    is_known: bool,
}

impl Intent {
    /// The image was pulled; returns once that is on disk.
    pub(super) async fn succeeded(mut self, image_ref: &str, with: PodCredentials) {
        let (image, image_ref) = (self.image.clone(), image_ref.to_owned());
        let commands = self.records.commands.clone();
        self.is_known = true;
        drop(self);
        let (answer, done) = oneshot::channel();
        let _ = commands.send(Command::Pulled { image, image_ref, with, answer }).await;
        let _ = done.await;
    }

    /// The image was not pulled, for certain.
    pub(super) async fn failed(mut self) {
        let (image, commands) = (self.image.clone(), self.records.commands.clone());
        self.is_known = true;
        drop(self);
        let _ = commands.send(Command::Forget { image }).await;
    }
}

impl Drop for Intent {
    fn drop(&mut self) {
        self.records.open.change(&self.image, |open| {
            open.under_way = open.under_way.saturating_sub(1);
            open.is_unsettled |= !self.is_known;
        });
    }
}

struct PullRecordsTask {
    files: Arc<dyn Files>,
    clock: Clock,
    metrics: Metrics,
    pulling: PathBuf,
    pulled: PathBuf,
    open: Arc<OpenPulls>,
}

impl PullRecordsTask {
    async fn run(self, mut commands: mpsc::Receiver<Command>) {
        for path in self.files(&self.pulling).await {
            if let Some(intent) = self.read_intent(&path).await {
                self.open.change(&intent.image, |open| open.is_unsettled = true);
            }
        }
        self.count().await;
        while let Some(command) = commands.recv().await {
            self.execute(command).await;
        }
    }

    async fn execute(&self, command: Command) {
        match command {
            Command::Lookup { image, image_ref, answer } => {
                let _ = answer.send(self.lookup(&image, &image_ref).await);
            }
            Command::Intend { image, answer } => {
                let _ = answer.send(self.intend(&image).await);
            }
            Command::Forget { image } => self.forget_intent(&image).await,
            Command::Pulled { image, image_ref, with, answer } => {
                let known = self.record(&image_ref).await.unwrap_or_default();
                let record = record_pull(known.as_ref(), &image, &image_ref, &with, self.now());
                // Until the record is written, the intent shows that the image was pulled.
                if self.write_record(&record).await {
                    self.forget_intent(&image).await;
                }
                let _ = answer.send(());
            }
            Command::Record { image, image_ref, credentials } => {
                if let Ok(Some(record)) = self.record(&image_ref).await {
                    self.write_record(&record_credentials(&record, &image, credentials, self.now())).await;
                }
                return;
            }
            Command::Listed { listed_at, images } => self.clean_up(listed_at, &images).await,
        }
        self.count().await;
    }

    fn now(&self) -> Time {
        Time(self.clock.now().wall)
    }

    async fn lookup(&self, image: &str, image_ref: &str) -> KnownPull {
        let mut was_intended = false;
        // Intents have the image as it was written, which another pod may write differently.
        for image in spellings(image) {
            let intent = self.files.read_file(&self.intent_path(&image), MAX_BYTES, false).await;
            // An unreadable intent or record counts as an unknown pull, so that the pod must have credentials.
            was_intended |= !intent.is_err_and(|error| error.is_not_found());
        }
        match self.record(image_ref).await {
            Ok(record) => KnownPull { record, was_intended },
            Err(()) => KnownPull { record: None, was_intended: true },
        }
    }

    /// The record of an image; an error if there is one that cannot be read.
    async fn record(&self, image_ref: &str) -> Result<Option<ImagePulledRecord>, ()> {
        let path = self.record_path(image_ref);
        match self.files.read_file(&path, MAX_BYTES, false).await {
            Ok(content) => match parse_record_file::<ImagePulledRecord>(&content) {
                Some(record) if record.image_ref == image_ref => Ok(Some(record)),
                Some(_) | None => {
                    tracing::warn!(path = %path.display(), "Image pull record is damaged, image must be pulled again");
                    Err(())
                }
            },
            Err(error) if error.is_not_found() => Ok(None),
            Err(error) => {
                tracing::warn!(err = chain(&error), "Failed to read image pull record");
                Err(())
            }
        }
    }

    async fn intend(&self, image: &str) -> Result<(), String> {
        let content = serde_json::to_vec(&ImagePullIntent::of(image)).map_err(|error| error.to_string())?;
        let written = self.files.write_durably(&self.intent_path(image), &content, 0o600).await;
        written.map_err(|error| chain(&error))
    }

    /// Removes the intent, unless another pull of the same image needs it.
    async fn forget_intent(&self, image: &str) {
        if self.open.is_open(image) {
            return;
        }
        if let Err(error) = self.files.remove_file(&self.intent_path(image)).await {
            tracing::warn!(image, err = chain(&error), "Failed to remove image pull intent");
        }
    }

    async fn write_record(&self, record: &ImagePulledRecord) -> bool {
        let Ok(content) = serde_json::to_vec(record) else { return false };
        let written = self.files.write_durably(&self.record_path(&record.image_ref), &content, 0o600).await;
        if let Err(error) = &written {
            tracing::warn!(
                image = record.image_ref,
                err = chain(error),
                "Failed to record image pull, image must be pulled again"
            );
        }
        written.is_ok()
    }

    fn intent_path(&self, image: &str) -> PathBuf {
        self.pulling.join(record_file(image))
    }

    fn record_path(&self, image_ref: &str) -> PathBuf {
        self.pulled.join(record_file(image_ref))
    }

    async fn files(&self, dir: &Path) -> Vec<PathBuf> {
        let entries = self.files.list_dir(dir).await.unwrap_or_default();
        entries.into_iter().filter(|entry| !entry.is_dir).map(|entry| dir.join(entry.name)).collect()
    }

    async fn count(&self) {
        let (intents, records) =
            (self.files(&self.pulling).await.len(), self.files(&self.pulled).await.len());
        self.metrics.get::<ImageMetrics>().set_files(intents, records);
    }

    /// Settles pulls with an unknown end, and removes records whose images are gone.
    async fn clean_up(&self, listed_at: Timestamp, images: &[ImageObservation]) {
        for path in self.files(&self.pulling).await {
            self.settle(&path, images).await;
        }
        let present: BTreeSet<&str> = images.iter().flat_map(names).collect();
        for path in self.files(&self.pulled).await {
            let Ok(content) = self.files.read_file(&path, MAX_BYTES, false).await else { continue };
            let record = parse_record_file::<ImagePulledRecord>(&content);
            // An unreadable record stays: its image must be pulled again, which replaces it.
            if record.is_some_and(|record| is_outlived(&record, &present, listed_at)) {
                self.remove(&path).await;
            }
        }
    }

    /// Settles a pull that is no longer under way.
    async fn settle(&self, path: &Path, images: &[ImageObservation]) {
        let intent = self.read_intent(path).await;
        if let Some(intent) = &intent {
            if self.open.is_under_way(&intent.image) {
                return;
            }
            if let Some(found) = find_image(images, &intent.image)
                && !self.settle_present(&found.id).await
            {
                return;
            }
        }
        self.remove(path).await;
        if let Some(intent) = intent {
            self.open.change(&intent.image, |open| open.is_unsettled = false);
        }
    }

    /// `None` for an unreadable intent, which does not name its image.
    async fn read_intent(&self, path: &Path) -> Option<ImagePullIntent> {
        let content = self.files.read_file(path, MAX_BYTES, false).await.ok()?;
        parse_record_file(&content)
    }

    /// The image was pulled with unknown credentials. The credentials in an existing record remain valid.
    async fn settle_present(&self, image_ref: &str) -> bool {
        match self.record(image_ref).await {
            Ok(Some(_)) => true,
            Ok(None) | Err(()) => self.write_record(&record_unknown(image_ref, self.now())).await,
        }
    }

    async fn remove(&self, path: &Path) {
        if let Err(error) = self.files.remove_file(path).await {
            tracing::warn!(err = chain(&error), "Failed to remove image pull record");
        }
    }
}

/// The names by which a record may refer to the image.
fn names(image: &ImageObservation) -> impl Iterator<Item = &str> {
    std::iter::once(image.id.as_str()).chain(image.repo_digests.iter().map(String::as_str))
}
