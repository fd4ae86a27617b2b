//! Which CPU and memory is allocated to pods and in force, on disk: read at start, written after changes, and before a resize that
//! restarts a container.
//!
//! Owns the two files. What they have is a view of [`Admissions`]; their format is in `resources_core::amounts_file`.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use base_agent::context::Context;
use base_agent::damaged;
use base_agent::error_chain::chain;
use model::PodUid;
use ports::host::HostResult;
use resources_core::allocations::RememberedAmounts;
use resources_core::amounts_file::{ACTUATED, ALLOCATED, Entries, parse, write};
use tokio::sync::Mutex;

use crate::admissions::Admissions;

/// A thousand pods with several containers have less.
const LIMIT: usize = 16 << 20;
const MODE: u32 = 0o600;
/// Pods that start together are written together, and no write to the disk holds up one of the runtime's while it starts them.
const PAUSE: Duration = Duration::from_secs(1);
/// After a write that failed, for example on a full disk: a kubelet that starts later needs what is in memory now.
const RETRY: Duration = Duration::from_secs(10);

/// Reads what an earlier kubelet wrote. A file that is damaged is set aside and counts as missing: pods keep their resources, as far
/// as they were saved with the pods.
///
/// # Errors
/// A file cannot be read: without it, a resize that waits would count as carried out.
pub(crate) async fn load(ctx: &Context) -> HostResult<BTreeMap<PodUid, RememberedAmounts>> {
    let mut all: BTreeMap<PodUid, RememberedAmounts> = BTreeMap::new();
    for (uid, resources) in read(ctx, ALLOCATED).await? {
        all.entry(uid).or_default().allocated = Some(resources);
    }
    for (uid, resources) in read(ctx, ACTUATED).await? {
        all.entry(uid).or_default().actuated = resources.to_actuated();
    }
    Ok(all)
}

async fn read(ctx: &Context, name: &str) -> HostResult<Entries> {
    let path = ctx.settings.paths.root.join(name);
    let parse = |bytes: &[u8]| parse(&String::from_utf8_lossy(bytes));
    let file = damaged::load(&*ctx.files, &path, LIMIT, "resources of pods", parse).await?;
    Ok(file.intact().unwrap_or_default())
}

/// A handle of the two files; clones share them.
#[derive(Clone, Debug)]
pub struct AmountFiles {
    ctx: Arc<Context>,
    admissions: Admissions,
    /// What is on disk, by file.
    on_disk: Arc<Mutex<[Box<str>; 2]>>,
}

impl AmountFiles {
    pub fn new(ctx: Arc<Context>, admissions: Admissions) -> Self {
        Self { ctx, admissions, on_disk: Arc::default() }
    }

    /// Writes what has changed. Returns whether both files have it; a failure is in the log.
    pub async fn save(&self) -> bool {
        let mut on_disk = self.on_disk.lock().await;
        let (allocated, actuated) = self.admissions.read(|table| table.amounts());
        let mut is_saved = true;
        let files = [(ALLOCATED, allocated), (ACTUATED, actuated)];
        for (known, (name, entries)) in on_disk.iter_mut().zip(files) {
            is_saved &= write_if_changed(&self.ctx, name, known, write(&entries)).await;
        }
        is_saved
    }

    /// Writes both files some time after changes. Never returns.
    pub async fn keep(self) {
        let (mut allocations, mut amounts) = (self.admissions.changes(), self.admissions.amount_changes());
        loop {
            allocations.borrow_and_update();
            amounts.borrow_and_update();
            let retry = (!self.save().await).then(|| self.ctx.clock.mono() + RETRY);
            tokio::select! {
                Ok(()) = allocations.changed() => {}
                Ok(()) = amounts.changed() => {}
                () = self.ctx.clock.sleep_until_some(retry) => {}
            }
            self.ctx.clock.sleep_until(self.ctx.clock.mono() + PAUSE).await;
        }
    }
}

/// Returns whether the file has the text.
async fn write_if_changed(ctx: &Context, name: &str, known: &mut Box<str>, text: String) -> bool {
    if *text == **known {
        return true;
    }
    let path = ctx.settings.paths.root.join(name);
    match ctx.files.write_durably(&path, text.as_bytes(), MODE).await {
        Ok(()) => *known = text.into(),
        Err(error) => {
            tracing::error!(path = %path.display(), err = chain(&error), "Failed to write the resources of pods");
            return false;
        }
    }
    true
}
