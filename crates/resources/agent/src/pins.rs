//! CPUs and memory that pods have for themselves: the policies of this machine, and the two state files.
//!
//! Owns `cpu_manager_state` and `memory_manager_state`. What they have is a view of [`Admissions`]; policies and formats are in
//! `resources_core`.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use base_agent::context::Context;
use base_agent::damaged::set_aside;
use base_agent::error_chain::chain;
use ports::HostError;
use resources_core::cpus::{CPU_STATE_FILE, CpuState, CpuStateError, parse_cpu_state, write_cpu_state};
use resources_core::memory::checkpoint::{
    FILE as MEMORY_STATE_FILE, MemoryCheckpointError, parse_memory_checkpoint, write_memory_checkpoint,
};
use resources_core::memory::{MemoryPolicy, MemoryState};
use resources_core::pinned::{PinPolicies, PinSettings, Pinned};
use resources_core::quantities::Amounts;
use tokio::sync::Mutex;

use crate::admissions::Admissions;

const LIMIT: usize = 16 << 20;
const MODE: u32 = 0o600;
/// What ended pods had is written together.
const PAUSE: Duration = Duration::from_secs(1);
const RETRY: Duration = Duration::from_secs(10);

/// A handle of the two files; clones share them.
#[derive(Clone, Debug)]
pub struct PinFiles {
    ctx: Arc<Context>,
    admissions: Admissions,
    /// What is on disk, by file.
    on_disk: Arc<Mutex<[String; 2]>>,
    /// Without any policy nothing changes after the start.
    are_fixed: bool,
}

impl PinFiles {
    /// Decides the policies of this machine, of which Node Allocatable reserves `reserved`, and restores what an earlier kubelet gave to
    /// pods.
    ///
    /// # Errors
    /// The configuration does not fit the machine, or a file is damaged or of another machine or policy: CPUs could be given twice.
    pub async fn load(
        ctx: &Arc<Context>,
        admissions: Admissions,
        reserved: &Amounts,
    ) -> Result<Self, HostError> {
        let policies = policies(ctx, reserved).await?;
        let (cpus, cpus_on_disk) = read_cpus(ctx, &policies).await?;
        let (memory, memory_on_disk) = read_memory(ctx, &policies).await?;
        let are_fixed = policies.are_none();
        let pinned = policies.start(Pinned { cpus, memory }).map_err(|error| {
            invalid(format!("{error}; drain this node and remove the state file before the next start"))
        })?;
        admissions.remember_pinned(Arc::new(policies), pinned);
        let on_disk = Arc::new(Mutex::new([cpus_on_disk, memory_on_disk]));
        let files = Self { ctx: ctx.clone(), admissions, on_disk, are_fixed };
        files.write().await.map_err(invalid)?;
        Ok(files)
    }

    /// Writes what has changed. Once this returns, a restart keeps what pods have.
    ///
    /// # Errors
    /// A file cannot be written. The text is complete.
    pub async fn save(&self) -> Result<(), String> {
        if self.are_fixed { Ok(()) } else { self.write().await }
    }

    async fn write(&self) -> Result<(), String> {
        let mut on_disk = self.on_disk.lock().await;
        let texts = self.admissions.read(|table| {
            let (policies, pinned) = table.pinned();
            texts(policies, pinned)
        });
        for ((path, known), text) in paths(&self.ctx).iter().zip(on_disk.iter_mut()).zip(texts) {
            if text == *known {
                continue;
            }
            let written = self.ctx.files.write_durably(path, text.as_bytes(), MODE).await;
            written.map_err(|error| format!("could not save checkpoint: {}", chain(&error)))?;
            *known = text;
        }
        Ok(())
    }

    /// Writes what ended pods no longer have. Never returns.
    pub async fn keep(self) {
        let mut changes = self.admissions.pin_changes();
        let mut is_saved = true;
        loop {
            let retry = (!is_saved).then(|| self.ctx.clock.mono() + RETRY);
            tokio::select! {
                Ok(()) = changes.changed() => {}
                () = self.ctx.clock.sleep_until_some(retry) => {}
            }
            self.ctx.clock.sleep_until(self.ctx.clock.mono() + PAUSE).await;
            changes.borrow_and_update();
            let saved = self.save().await;
            is_saved = saved.is_ok();
            if let Err(why) = saved {
                tracing::error!(err = why, "Failed to write the state of the CPU and memory managers");
            }
        }
    }
}

fn invalid(message: String) -> HostError {
    HostError::Invalid(message)
}

fn paths(ctx: &Context) -> [PathBuf; 2] {
    [CPU_STATE_FILE, MEMORY_STATE_FILE].map(|name| ctx.settings.paths.root.join(name))
}

fn memory_policy_name(policies: &PinPolicies) -> &'static str {
    if policies.memory().is_some() { MemoryPolicy::NAME } else { "None" }
}

fn texts(policies: &PinPolicies, pinned: &Pinned) -> [String; 2] {
    let pod_level = policies.has_pod_level_managers();
    [
        write_cpu_state(policies.cpus().name(), &pinned.cpus, pod_level),
        write_memory_checkpoint(memory_policy_name(policies), &pinned.memory, pod_level),
    ]
}

async fn policies(ctx: &Context, reserved: &Amounts) -> Result<PinPolicies, HostError> {
    let config = ctx.config();
    if !PinPolicies::are_configured(config) {
        return Ok(PinPolicies::default());
    }
    let topology = ctx.machine.topology().await?;
    let settings = PinSettings { config, features: ctx.node_facts.features, reserved };
    PinPolicies::of(&settings, &topology).map_err(|error| invalid(error.to_string()))
}

async fn read_cpus(ctx: &Context, policies: &PinPolicies) -> Result<(CpuState, String), HostError> {
    let [path, _] = paths(ctx);
    restored(ctx, &path, policies, |text| {
        // Files that name containers by the ids of the runtime are older than any kubelet from which a node can be upgraded.
        let parsed =
            parse_cpu_state(text, policies.cpus().name(), policies.has_pod_level_managers(), |_| None);
        parsed.map(|(state, _)| state).map_err(|error| Refused {
            message: error.advice(&path.display().to_string()),
            is_of_other_policy: matches!(error, CpuStateError::Policy { .. }),
        })
    })
    .await
}

async fn read_memory(ctx: &Context, policies: &PinPolicies) -> Result<(MemoryState, String), HostError> {
    let [_, path] = paths(ctx);
    restored(ctx, &path, policies, |text| {
        let parsed =
            parse_memory_checkpoint(text, memory_policy_name(policies), policies.has_pod_level_managers());
        parsed.map_err(|error| Refused {
            message: error.message(&path.display().to_string()),
            is_of_other_policy: matches!(error, MemoryCheckpointError::OtherPolicy { .. }),
        })
    })
    .await
}

/// Why a file is not used.
struct Refused {
    message: String,
    is_of_other_policy: bool,
}

/// The state in a file, and its text. Without any policy a damaged file has nothing to lose, and is set aside.
async fn restored<S: Default>(
    ctx: &Context,
    path: &Path,
    policies: &PinPolicies,
    parse: impl FnOnce(&str) -> Result<S, Refused>,
) -> Result<(S, String), HostError> {
    let text = match ctx.files.read_file(path, LIMIT, false).await {
        Ok(bytes) => String::from_utf8_lossy(&bytes).into_owned(),
        Err(error) if error.is_not_found() => return Ok(Default::default()),
        Err(error) => return Err(error),
    };
    match parse(&text) {
        Ok(state) => Ok((state, text)),
        Err(refused) if policies.are_none() && !refused.is_of_other_policy => {
            set_aside(&*ctx.files, path).await;
            Ok(Default::default())
        }
        Err(refused) => Err(invalid(refused.message)),
    }
}
