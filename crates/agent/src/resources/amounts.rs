//! Which CPU and memory is allocated to pods and in force, on disk: read at start, written after changes.
//!
//! Owns the two files. What they have is a view of [`Admissions`]; their format is in `kubelet_core::resources::amounts_file`.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use kubelet_core::resources::allocations::RememberedAmounts;
use kubelet_core::resources::amounts_file::{ACTUATED, ALLOCATED, Entries, parse, write};
use model::PodUid;
use tokio::sync::watch;

use crate::context::Context;
use crate::error_chain::chain;
use crate::resources::admissions::{Admissions, AmountChange};

/// A thousand pods with several containers have less.
const LIMIT: usize = 16 << 20;
const MODE: u32 = 0o600;
/// Pods that start together are written together, and no write to the disk holds up one of the runtime's while it starts them.
const PAUSE: Duration = Duration::from_secs(1);
/// After a write that failed, for example on a full disk: a kubelet that starts later needs what is in memory now.
const RETRY: Duration = Duration::from_secs(10);

/// Reads what an earlier kubelet wrote. A file that is damaged is set aside and counts as missing: pods keep their resources, as far
/// as they were saved with the pods.
pub(crate) async fn load(ctx: &Context) -> BTreeMap<PodUid, RememberedAmounts> {
    let mut all: BTreeMap<PodUid, RememberedAmounts> = BTreeMap::new();
    for (uid, resources) in read(ctx, ALLOCATED).await {
        all.entry(uid).or_default().allocated = Some(resources);
    }
    for (uid, resources) in read(ctx, ACTUATED).await {
        all.entry(uid).or_default().actuated = resources.to_actuated();
    }
    all
}

async fn read(ctx: &Context, name: &str) -> Entries {
    let path = ctx.settings.paths.root.join(name);
    let why = match ctx.files.read_file(&path, LIMIT, false).await {
        Ok(bytes) => match parse(&String::from_utf8_lossy(&bytes)) {
            Ok(entries) => return entries,
            Err(why) => {
                crate::damaged::set_aside(&*ctx.files, &path).await;
                why
            }
        },
        Err(error) if error.is_not_found() => return Entries::new(),
        Err(error) => chain(&error),
    };
    tracing::error!(path = %path.display(), err = why, "Failed to read the resources of pods");
    Entries::new()
}

/// Writes both files after changes. Never returns.
pub(crate) async fn keep(ctx: Arc<Context>, admissions: Admissions) {
    let (mut allocations, mut amounts) = (admissions.changes(), admissions.amount_changes());
    let mut on_disk = [String::new(), String::new()];
    let files = [ALLOCATED, ACTUATED].map(|name| ctx.settings.paths.root.join(name));
    loop {
        allocations.borrow_and_update();
        amounts.borrow_and_update();
        let (allocated, actuated) = admissions.read(|table| table.amounts());
        let mut is_saved = true;
        for ((path, known), entries) in files.iter().zip(&mut on_disk).zip([allocated, actuated]) {
            is_saved &= save(&ctx, path, known, write(&entries)).await;
        }
        tokio::select! {
            Ok(()) = allocations.changed() => {}
            Ok(()) = amounts.changed() => {}
            () = ctx.clock.sleep_until(ctx.clock.mono() + RETRY), if !is_saved => {}
        }
        // A container must not be restarted again for a resize that is done.
        if !amounts.borrow().of_resize {
            tokio::select! {
                () = ctx.clock.sleep_until(ctx.clock.mono() + PAUSE) => {}
                () = resized(&mut amounts) => {}
            }
        }
    }
}

/// Returns at the next change that is part of a resize. Cancel safe.
async fn resized(amounts: &mut watch::Receiver<AmountChange>) {
    // The sender lives as long as the table.
    while amounts.changed().await.is_ok() {
        if amounts.borrow_and_update().of_resize {
            return;
        }
    }
    std::future::pending().await
}

/// Returns whether the file has the text.
async fn save(ctx: &Context, path: &Path, known: &mut String, text: String) -> bool {
    if text == *known {
        return true;
    }
    match ctx.files.write_durably(path, text.as_bytes(), MODE).await {
        Ok(()) => *known = text,
        Err(error) => {
            tracing::error!(path = %path.display(), err = chain(&error), "Failed to write the resources of pods");
            return false;
        }
    }
    true
}
