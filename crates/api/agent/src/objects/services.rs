//! Services, for the environment variables of pods: those of the namespaces that have pods on this node, and the API server's.
//!
//! Owns one reflector for each of these namespaces, shared by its pods, which ends with the last of them. A pod never waits for the
//! Services of another namespace, however many there are.

use std::collections::BTreeMap;
use std::sync::{Arc, Weak};
use std::time::Duration;

use api_core::env_services::{MASTER_SERVICE, NamedService, service_variables, wants_service_links};
use api_core::reflector::ObjectKey;
use base_agent::context::Context;
use jiff::Timestamp;
use model::k8s::Pod;
use model::{ServiceEntry, ServiceObject};
use parking_lot::Mutex;
use ports::cluster::Selection;
use ports::{Clock, Cluster};
use tokio::sync::watch;

use super::ObjectError;
use crate::reflector::{CollectionOf, Keep, Reflector, Store, StoreReader, UidOf};

const KIND: &str = "Service";
/// How long a container waits for the first lists. Then that of a pod with links is retried, and that of another starts without them.
const SYNC_TIMEOUT: Duration = Duration::from_secs(5);

/// The Services that pods of this node may need.
#[derive(Debug, Default)]
pub struct Services {
    master: watch::Sender<Store<ServiceEntry>>,
    /// Holds weak references; the pods own the stores.
    by_namespace: Mutex<BTreeMap<String, Weak<Linked>>>,
}

/// The Services of one namespace.
#[derive(Debug)]
struct Linked(StoreReader<ServiceEntry>);

/// The Services that one pod may need.
#[derive(Debug)]
pub struct PodServices {
    master: StoreReader<ServiceEntry>,
    /// `None` if the pod wants no links.
    linked: Option<Arc<Linked>>,
}

impl Services {
    /// Starts the reflector of the API server's Service.
    pub fn start(&self, ctx: &Arc<Context>, cluster: &Arc<dyn Cluster>) {
        let (namespace, name) = MASTER_SERVICE;
        let selection = Selection {
            namespace: Some(namespace.to_owned()),
            fields: Some(format!("metadata.name={name}")),
            labels: None,
        };
        let reflector = reflector(ctx, cluster, selection, self.master.clone());
        ctx.tasks.spawn("Service reflector", reflector.run());
    }

    pub fn of(&self, ctx: &Arc<Context>, cluster: &Arc<dyn Cluster>, pod: &Pod) -> PodServices {
        let namespace = pod.metadata.namespace.as_deref().unwrap_or_default();
        let linked = wants_service_links(pod).then(|| self.linked(ctx, cluster, namespace));
        PodServices { master: self.master.subscribe(), linked }
    }

    fn linked(&self, ctx: &Arc<Context>, cluster: &Arc<dyn Cluster>, namespace: &str) -> Arc<Linked> {
        let mut known = self.by_namespace.lock();
        known.retain(|_, linked| linked.strong_count() > 0);
        if let Some(linked) = known.get(namespace).and_then(Weak::upgrade) {
            return linked;
        }
        let selection = Selection { namespace: Some(namespace.to_owned()), ..Selection::default() };
        let (sender, seen) = watch::channel(Store::default());
        let reflector = reflector(ctx, cluster, selection, sender.clone());
        ctx.tasks.spawn_isolated("Service reflector", async move {
            tokio::select! {
                () = reflector.run() => {}
                () = sender.closed() => {}
            }
        });
        let linked = Arc::new(Linked(seen));
        known.insert(namespace.to_owned(), Arc::downgrade(&linked));
        linked
    }
}

fn reflector(
    ctx: &Arc<Context>,
    cluster: &Arc<dyn Cluster>,
    selection: Selection,
    seen: watch::Sender<Store<ServiceEntry>>,
) -> Reflector<ServiceObject, ServiceEntry> {
    let of: CollectionOf<ServiceObject> = |cluster| cluster.services();
    let keep: Keep<ServiceObject, ServiceEntry> = keep_entry;
    // Only names are compared: of a Service that cannot be decoded any more, the last version is used.
    let uid_of: UidOf<ServiceEntry> = |_| None;
    Reflector::keeping(ctx, cluster, of, KIND, selection, keep, uid_of, seen)
}

/// Returns the entry that is known already, if it has not changed: while a list arrives, the store has the earlier one.
pub(crate) fn keep_entry(
    service: ServiceObject,
    known: Option<&Arc<ServiceEntry>>,
    _now: Timestamp,
) -> Arc<ServiceEntry> {
    match known.filter(|known| ***known == service.entry) {
        Some(known) => known.clone(),
        None => Arc::new(service.entry),
    }
}

impl PodServices {
    /// Waits until the Services are known. A static pod must be able to start without an API, and uses those that are known; a pod
    /// without links needs none, and waits a little for that of the API server.
    ///
    /// # Errors
    /// Some that the pod needs have not been listed yet.
    pub(crate) async fn wait(&self, clock: Clock, is_static: bool) -> Result<(), ObjectError> {
        if is_static {
            return Ok(());
        }
        let known = async {
            let linked = match &self.linked {
                Some(linked) => is_listed(linked.0.clone()).await,
                None => true,
            };
            linked && is_listed(self.master.clone()).await
        };
        let are_known = tokio::select! {
            known = known => known,
            () = clock.sleep_until(clock.mono() + SYNC_TIMEOUT) => false,
        };
        if are_known || self.linked.is_none() { Ok(()) } else { Err(ObjectError::NoServices) }
    }

    /// The variables of the Services that are known.
    pub(crate) fn variables(&self, pod: &Pod) -> BTreeMap<String, String> {
        let master = self.master.borrow();
        let linked = self.linked.as_ref().map(|linked| linked.0.borrow());
        let stores = std::iter::once(&*master).chain(linked.as_deref());
        service_variables(pod, stores.flat_map(|store| store.objects.iter().map(named)))
    }
}

/// Waits for the first list; an error means that the reflector ended before it.
async fn is_listed(mut store: StoreReader<ServiceEntry>) -> bool {
    store.wait_for(|seen| seen.is_complete).await.is_ok()
}

fn named<'a>((key, entry): (&'a Arc<ObjectKey>, &'a Arc<ServiceEntry>)) -> NamedService<'a> {
    NamedService { namespace: &key.namespace, name: &key.name, entry }
}
