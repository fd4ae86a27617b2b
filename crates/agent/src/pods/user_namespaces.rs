//! User namespaces of pods (`hostUsers: false`).
//!
//! Owns the ID ranges of pods; decisions are made in `kubelet_core::pods::userns`. The file `userns` in a pod's directory survives
//! the process: it is written before any container of the pod runs, and removed only when none runs any more.

use std::sync::Arc;
use std::time::Duration;

use config::KubeletConfiguration;
use kubelet_core::pods::request::IdMappings;
use kubelet_core::pods::userns::{UserNamespaces, UsernsError, file_content};
use model::PodUid;
use parking_lot::Mutex;
use ports::host::HostResult;
use ports::runtime::RuntimeHandler;
use ports::{Files, HostError, Machine};

use base_agent::context::Context;
use base_agent::error_chain::chain;
use base_agent::settings::Settings;

const FILE: &str = "userns";
/// A file has about 200 bytes; a larger one was not written by a kubelet.
const FILE_LIMIT: usize = 4096;
/// The user whose subordinate IDs pods get.
const USER: &str = "kubelet";
/// The lookup may use the network.
const SUBORDINATE_IDS_TIMEOUT: Duration = Duration::from_secs(10);

/// A handle; clones share the ids.
#[derive(Clone, Debug)]
pub struct PodIds {
    ids: Arc<Mutex<UserNamespaces>>,
}

impl PodIds {
    /// Reads the available IDs, and those that pods have from before.
    ///
    /// # Errors
    /// The subordinate IDs of the machine are invalid, or the directory of all pods cannot be listed.
    pub async fn load(ctx: &Context) -> HostResult<Self> {
        let (files, settings) = (&*ctx.files, &ctx.settings);
        let unusable = |error| HostError::Invalid(format!("create user namespace manager: {error}"));
        let mut ids = pool(&*ctx.machine, ctx.config()).await.map_err(unusable)?;
        for entry in files.list_dir(&settings.paths.pods()).await?.into_iter().filter(|entry| entry.is_dir) {
            let uid = PodUid::from(entry.name);
            let problem = match read(files, settings, &uid).await {
                Ok(None) => continue,
                Ok(Some(file)) => ids.record(&uid, &file).err().map(|error| error.to_string()),
                Err(error) => {
                    ids.record_unreadable(&uid, chain(&error));
                    Some(chain(&error))
                }
            };
            if let Some(problem) = problem {
                tracing::error!(podUID = %uid, problem, "Failed to read the user namespace of a pod, not creating user namespaces until it is gone");
            }
        }
        Ok(Self { ids: Arc::new(Mutex::new(ids)) })
    }

    /// The pod's IDs, which are on disk when this returns. Cancel safe: a call that was dropped is repeated.
    ///
    /// # Errors
    /// The runtime lacks support, no IDs are free, or the file cannot be written. The text is complete.
    pub async fn ensure(
        &self,
        files: &dyn Files,
        settings: &Settings,
        pod: &PodUid,
        name: &str,
        handler: Option<&RuntimeHandler>,
    ) -> Result<IdMappings, String> {
        if !handler.is_some_and(|handler| handler.user_namespaces) {
            let error = match name {
                "" => UsernsError::RuntimeCannot,
                name => UsernsError::HandlerCannot(name.to_owned()),
            };
            return Err(error.to_string());
        }
        let mappings = self.ids.lock().allocate(pod).map_err(|error| error.to_string())?;
        let path = settings.paths.pod(pod).join(FILE);
        let written = files.write_durably(&path, file_content(&mappings).as_bytes(), 0o644).await;
        written.map_err(|error| format!("create user namespace: {}", chain(&error)))?;
        Ok(mappings)
    }

    /// No container of the pod runs any more: its IDs are free as soon as its file is removed.
    ///
    /// # Errors
    /// The file cannot be removed; the IDs stay allocated.
    pub async fn release(&self, files: &dyn Files, settings: &Settings, pod: &PodUid) -> HostResult<()> {
        files.remove_file(&settings.paths.pod(pod).join(FILE)).await?;
        self.ids.lock().release(pod);
        Ok(())
    }
}

async fn pool(machine: &dyn Machine, config: &KubeletConfiguration) -> Result<UserNamespaces, UsernsError> {
    let lookup = tokio::time::timeout(SUBORDINATE_IDS_TIMEOUT, machine.subordinate_ids(USER)).await;
    let subordinate = match lookup {
        Ok(Ok(subordinate)) => subordinate,
        Ok(Err(error)) => return Err(UsernsError::Pool(chain(&error))),
        Err(_) => return Err(UsernsError::Pool(format!("timed out after {SUBORDINATE_IDS_TIMEOUT:?}"))),
    };
    let ids_per_pod = u32::try_from(config.user_namespaces.ids_per_pod).unwrap_or(65536);
    let max_pods = u32::try_from(config.max_pods).unwrap_or(110);
    let ranges = subordinate.as_ref().map(|ids| (&ids.uids[..], &ids.gids[..]));
    UserNamespaces::new(ranges, ids_per_pod, max_pods)
}

/// `None` for a pod without a user namespace. A power failure may leave an empty file, and no container runs after one.
async fn read(files: &dyn Files, settings: &Settings, pod: &PodUid) -> Result<Option<String>, HostError> {
    match files.read_file(&settings.paths.pod(pod).join(FILE), FILE_LIMIT, false).await {
        Ok(content) if content.is_empty() => Ok(None),
        Ok(content) => Ok(Some(String::from_utf8_lossy(&content).into_owned())),
        Err(error) if error.is_not_found() => Ok(None),
        Err(error) => Err(error),
    }
}
