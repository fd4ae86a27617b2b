//! The API objects that pods refer to: ConfigMaps, Secrets, tokens, ClusterTrustBundles, certificates, Services and RuntimeClasses.
//!
//! Owns their stores. A worker registers its pod before the first pass and holds the registration while the pod may need
//! an object; only objects that a registered pod refers to are ever requested. Which those are, and how they are used, is
//! decided in `kubelet-core` (variables), `volumes-core` and `images-core`.

mod bundles;
mod certificates;
pub mod services;
mod source;
mod tokens;

use std::collections::{BTreeMap, BTreeSet};
use std::future::pending;
use std::sync::Arc;

use api_core::env_objects::{EnvObjects, env_objects, required_env_objects};
use api_core::reflector::ObjectKey;
use base_agent::context::Context;
use base_core::object_name::ObjectName;
use base_core::pod_kind::is_static_pod;
use base_core::service_account_token::TokenRequirement;
use futures_util::FutureExt;
use futures_util::future::{BoxFuture, select_all};
use images_core::pull_secrets::pull_secret_names;
use model::SmallMap;
use model::k8s::{ConfigMap, Node, Pod, RuntimeClass, Secret, ServiceAccount, TrustBundle};
use ports::cluster::{ClusterError, Selection};
use ports::{Certificates, Cluster};
use tokio::sync::watch;
use volumes_core::bundle::BundleRequirement;
use volumes_core::objects::RequiredObjects;
use volumes_core::token::IssuedToken;
use volumes_core::{VolumeObjects, required_objects};

use self::bundles::{Bundles, Selected};
use self::certificates::{Credentials, Issued, PodCertificates};
use self::services::{PodServices, Services};
use self::source::{Access, Source, Sources, Strategy, wait_for_sync};
use self::tokens::{PodTokens, account_of};
use super::reflector::{CollectionOf, Reflector, Store, StoreReader};

/// Objects that one pod may refer to, each of at most 1 MiB: ConfigMaps, Secrets, service account tokens and selections of
/// ClusterTrustBundles. The API takes pods that name tens of thousands of them (docs/decisions/0065).
const MAX_OBJECTS: usize = 256;

/// Why an object could not be read. That it does not exist is no error here.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ObjectError {
    /// The first list is not complete yet.
    #[error("failed to sync {kind} cache: timed out waiting for the condition")]
    NotSynced { kind: &'static str },
    #[error(
        "pod refers to {count} ConfigMaps, Secrets, service account tokens and ClusterTrustBundles, but a pod may refer to at most \
         {MAX_OBJECTS}"
    )]
    TooManyObjects { count: usize },
    #[error("services have not yet been read at least once, cannot construct envvars")]
    NoServices,
    #[error("runtimeclass.node.k8s.io {name:?} not found")]
    NoRuntimeClass { name: String },
    #[error("{kind} {name:?} cannot be decoded: {problem}")]
    Malformed { kind: &'static str, name: String, problem: String },
    #[error("failed to fetch token: a standalone kubelet has no API server")]
    NoApi,
    #[error("failed to fetch token: {0}")]
    Token(ClusterError),
    #[error(transparent)]
    Api(ClusterError),
}

/// The sources that all pods share. A standalone kubelet has none.
#[derive(Debug)]
pub struct ClusterObjects {
    access: Access,
    config_maps: Sources<ConfigMap>,
    secrets: Sources<Secret>,
    bundles: Bundles,
    certificates: PodCertificates,
    services: Services,
    runtime_classes: watch::Sender<Store<RuntimeClass>>,
}

impl ClusterObjects {
    /// `strategy` is the name of a `configMapAndSecretChangeDetectionStrategy`; `certificates` generates the keys of pods.
    #[must_use]
    pub fn new(
        cluster: Arc<dyn Cluster>,
        clock: ports::Clock,
        strategy: &str,
        own_node: StoreReader<Node>,
        certificates: Arc<dyn Certificates>,
    ) -> Self {
        Self {
            access: Access { cluster, clock, strategy: Strategy::parse(strategy), own_node },
            config_maps: Sources::default(),
            secrets: Sources::default(),
            bundles: Bundles::default(),
            certificates: PodCertificates::new(certificates),
            services: Services::default(),
            runtime_classes: watch::Sender::new(Store::default()),
        }
    }

    /// The API client, for objects without a reflector.
    pub const fn cluster(&self) -> &Arc<dyn Cluster> {
        &self.access.cluster
    }

    /// Starts the reflectors of the API server's Service and of RuntimeClasses, which every pod may need.
    pub fn start(&self, ctx: &Arc<Context>) {
        let (cluster, all) = (&self.access.cluster, Selection::default());
        let classes: CollectionOf<RuntimeClass> = |cluster| cluster.runtime_classes();
        let runtime_classes =
            Reflector::new(ctx, cluster, classes, "RuntimeClass", all, self.runtime_classes.clone());
        self.services.start(ctx, cluster);
        ctx.tasks.spawn("RuntimeClass reflector", runtime_classes.run());
    }

    /// `before`: the registration of an earlier version of the pod, whose sources are kept.
    fn register(&self, ctx: &Arc<Context>, pod: &Arc<Pod>, before: Option<&Registered>) -> Registered {
        let namespace = pod.metadata.namespace.clone().unwrap_or_default();
        let (mut config_maps, mut secrets) = (SmallMap::default(), SmallMap::default());
        let names = all_names(pod);
        let required = required_objects(pod);
        let object_count = names.len() + required.tokens.len() + required.bundles.len();
        for name in names.into_iter().filter(|_| object_count <= MAX_OBJECTS) {
            let key = |name: &str| ObjectKey { namespace: namespace.clone(), name: name.to_owned() };
            match name {
                ObjectName::ConfigMap(name) => {
                    let known = before.and_then(|before| before.config_maps.get(&name).cloned());
                    let source = known.unwrap_or_else(|| self.config_maps.of(ctx, &self.access, &key(&name)));
                    config_maps.insert(name, source);
                }
                ObjectName::Secret(name) => {
                    let known = before.and_then(|before| before.secrets.get(&name).cloned());
                    let source = known.unwrap_or_else(|| self.secrets.of(ctx, &self.access, &key(&name)));
                    secrets.insert(name, source);
                }
            }
        }
        let tokens = before.map_or_else(|| PodTokens::new(&ctx.rng), |before| before.tokens.clone());
        tokens.keep_only(|requirement| required.tokens.contains(requirement));
        let bundles = ctx.node_facts.features.trust_bundles.then(|| {
            let of = |requirement: &BundleRequirement| {
                let known = before.and_then(|before| before.bundles.as_ref()?.get(requirement).cloned());
                known.unwrap_or_else(|| self.bundles.of(ctx, &self.access, requirement))
            };
            let bundles = required.bundles.iter().filter(|_| object_count <= MAX_OBJECTS);
            bundles.map(|requirement| (requirement.clone(), of(requirement))).collect()
        });
        let certificates = ctx.node_facts.features.pod_certificates.then(|| {
            let before = before.and_then(|before| before.certificates.as_ref());
            self.certificates.of(ctx, &self.access, pod, before)
        });
        Registered {
            access: self.access.clone(),
            pod: pod.clone(),
            object_count,
            config_maps,
            secrets,
            bundles,
            certificates,
            tokens,
            services: self.services.of(ctx, &self.access.cluster, pod),
            runtime_classes: self.runtime_classes.subscribe(),
        }
    }
}

/// Every ConfigMap and Secret that the pod refers to.
fn all_names(pod: &Pod) -> BTreeSet<ObjectName> {
    let mut names = required_objects(pod).names;
    names.extend(required_env_objects(pod));
    names.extend(pull_secret_names(pod).map(|name| ObjectName::Secret(name.to_owned())));
    names
}

/// The objects that one pod refers to. Clones share them; when the last clone is dropped, the objects are no longer
/// watched for this pod. On a standalone node no object exists.
#[derive(Clone, Debug, Default)]
pub struct PodObjects {
    registered: Option<Arc<Registered>>,
}

#[derive(Debug)]
struct Registered {
    access: Access,
    pod: Arc<Pod>,
    /// Number of objects that the pod refers to. If it exceeds [`MAX_OBJECTS`], none of them is read.
    object_count: usize,
    config_maps: SmallMap<String, Arc<Source<ConfigMap>>>,
    secrets: SmallMap<String, Arc<Source<Secret>>>,
    /// `None` if the feature is off.
    bundles: Option<SmallMap<BundleRequirement, Arc<Selected>>>,
    /// `None` if the feature is off.
    certificates: Option<Issued>,
    tokens: Arc<PodTokens>,
    services: PodServices,
    runtime_classes: StoreReader<RuntimeClass>,
}

impl PodObjects {
    /// Registers the objects of this version of the pod, and keeps the sources that `self` has of the version before.
    #[must_use]
    pub fn register(&self, ctx: &Arc<Context>, objects: Option<&ClusterObjects>, pod: &Arc<Pod>) -> Self {
        let Some(objects) = objects else { return Self::default() };
        Self { registered: Some(Arc::new(objects.register(ctx, pod, self.registered.as_deref()))) }
    }

    /// The required objects that exist, and the required tokens.
    ///
    /// # Errors
    /// Whether one of them exists is not known now.
    pub async fn find(&self, required: &RequiredObjects) -> Result<VolumeObjects, ObjectError> {
        let mut found = VolumeObjects::default();
        let Some(registered) = &self.registered else { return Ok(found) };
        let count = required.names.len() + required.tokens.len() + required.bundles.len();
        registered.check_count(count)?;
        registered.find_named(&required.names, &mut found).await?;
        for requirement in &required.tokens {
            let token = registered.tokens.get(&registered.access, &registered.pod, requirement).await?.token;
            found.tokens.insert(requirement.clone(), token);
        }
        found.bundles = registered.find_bundles(required).await?;
        let certificates = registered.certificates.as_ref();
        found.certificates = certificates.map(|issued| issued.get(&required.certificates));
        Ok(found)
    }

    /// The objects that environment variables of the pod are taken from.
    ///
    /// # Errors
    /// As [`PodObjects::find`]; and a pod from the API waits until the Services that it needs were listed once.
    pub async fn env(&self) -> Result<EnvObjects, ObjectError> {
        let Some(registered) = &self.registered else { return Ok(EnvObjects::default()) };
        registered.services.wait(registered.access.clock, is_static_pod(&registered.pod)).await?;
        let mut found = VolumeObjects::default();
        let required = required_env_objects(&registered.pod);
        registered.find_named(&required, &mut found).await?;
        let config_maps: Vec<&ConfigMap> = found.config_maps.values().map(|map| &**map).collect();
        let secrets: Vec<&Secret> = found.secrets.values().map(|secret| &**secret).collect();
        let pod = &registered.pod;
        Ok(env_objects(pod, &config_maps, &secrets, registered.services.variables(pod)))
    }

    /// The pod's image pull secrets, in the order of the spec, and the names of those that do not exist or cannot be read.
    pub async fn pull_secrets(&self) -> (Vec<Arc<Secret>>, Vec<String>) {
        let (mut found, mut missing) = (Vec::new(), Vec::new());
        let Some(registered) = &self.registered else { return (found, missing) };
        let names: Vec<String> = pull_secret_names(&registered.pod).map(str::to_owned).collect();
        for name in names {
            let Some(source) = registered.secrets.get(&name) else { continue };
            match source.get().await {
                Ok(Some(secret)) => found.push(secret),
                Ok(None) => missing.push(name),
                Err(error) => {
                    tracing::warn!(secret = name, err = %error, "Failed to read image pull secret");
                    missing.push(name);
                }
            }
        }
        (found, missing)
    }

    /// The runtime handler of that RuntimeClass; empty for a pod without one. Without an API, the name of the class is used
    /// as its handler.
    ///
    /// # Errors
    /// The class does not exist, or it is not known now whether it exists.
    pub async fn runtime_handler(&self, class: &str) -> Result<String, ObjectError> {
        let Some(registered) = self.registered.as_ref().filter(|_| !class.is_empty()) else {
            return Ok(class.to_owned());
        };
        let mut classes = registered.runtime_classes.clone();
        wait_for_sync(registered.access.clock, &mut classes, "runtimeclass").await?;
        let key = ObjectKey { namespace: String::new(), name: class.to_owned() };
        let found = classes.borrow().find(&key);
        match found {
            Ok(Some(class)) => Ok(class.handler.clone()),
            Ok(None) => Err(ObjectError::NoRuntimeClass { name: class.to_owned() }),
            Err(problem) => {
                Err(ObjectError::Malformed { kind: "runtimeclass", name: class.to_owned(), problem })
            }
        }
    }

    /// The service account of the pod; `None` for a pod without one, and without an API.
    ///
    /// # Errors
    /// It cannot be read, or does not exist.
    pub async fn service_account(&self) -> Result<Option<ServiceAccount>, ObjectError> {
        let Some(registered) = &self.registered else { return Ok(None) };
        let name = account_of(&registered.pod).map(str::to_owned);
        let Some(name) = name else { return Ok(None) };
        let namespace = registered.pod.metadata.namespace.as_deref().unwrap_or_default();
        let accounts = registered.access.cluster.service_accounts();
        accounts.get(namespace, &name).await.map(Some).map_err(ObjectError::Api)
    }

    /// A service account token of the pod, cached until most of its lifetime is over.
    ///
    /// # Errors
    /// No token could be requested, and no cached one is valid.
    pub async fn token(&self, requirement: &TokenRequirement) -> Result<String, ObjectError> {
        self.issued_token(requirement).await.map(|issued| issued.token)
    }

    /// As [`Self::token`], with the time when it expires.
    ///
    /// # Errors
    /// No token could be requested, and no cached one is valid.
    pub async fn issued_token(&self, requirement: &TokenRequirement) -> Result<IssuedToken, ObjectError> {
        match &self.registered {
            Some(registered) => registered.tokens.get(&registered.access, &registered.pod, requirement).await,
            None => Err(ObjectError::NoApi),
        }
    }

    /// Notifies of changes of the objects.
    #[must_use]
    pub fn changes(&self) -> ObjectChanges {
        let Some(registered) = &self.registered else { return ObjectChanges::default() };
        ObjectChanges {
            config_maps: registered.config_maps.values().filter_map(|source| source.changes()).collect(),
            secrets: registered.secrets.values().filter_map(|source| source.changes()).collect(),
            bundles: registered
                .bundles
                .iter()
                .flat_map(SmallMap::values)
                .filter_map(|of| of.changes())
                .collect(),
            certificates: registered.certificates.iter().filter_map(Issued::changes).collect(),
        }
    }
}

/// The trust bundles that were found, in the form in which [`VolumeObjects`] has them.
type FoundBundles = Option<BTreeMap<BundleRequirement, Vec<Arc<TrustBundle>>>>;

impl Registered {
    /// Nothing is read for a pod that refers to too many objects. What needs none (`needed`) goes on.
    const fn check_count(&self, needed: usize) -> Result<(), ObjectError> {
        if self.object_count > MAX_OBJECTS && needed > 0 {
            return Err(ObjectError::TooManyObjects { count: self.object_count });
        }
        Ok(())
    }

    async fn find_named(
        &self,
        names: &BTreeSet<ObjectName>,
        found: &mut VolumeObjects,
    ) -> Result<(), ObjectError> {
        self.check_count(names.len())?;
        for name in names {
            match name {
                ObjectName::ConfigMap(name) => {
                    let Some(source) = self.config_maps.get(name) else { continue };
                    found.config_maps.extend(source.get().await?.map(|object| (name.clone(), object)));
                }
                ObjectName::Secret(name) => {
                    let Some(source) = self.secrets.get(name) else { continue };
                    found.secrets.extend(source.get().await?.map(|object| (name.clone(), object)));
                }
            }
        }
        Ok(())
    }

    async fn find_bundles(&self, required: &RequiredObjects) -> Result<FoundBundles, ObjectError> {
        let Some(known) = &self.bundles else { return Ok(None) };
        let mut found = BTreeMap::new();
        for requirement in &required.bundles {
            let Some(selected) = known.get(requirement) else { continue };
            found.insert(requirement.clone(), selected.get(self.access.clock).await?);
        }
        Ok(Some(found))
    }
}

/// Notifies of changes, if the strategy watches objects.
#[derive(Debug, Default)]
pub struct ObjectChanges {
    config_maps: Vec<StoreReader<ConfigMap>>,
    secrets: Vec<StoreReader<Secret>>,
    bundles: Vec<StoreReader<TrustBundle>>,
    certificates: Vec<watch::Receiver<Credentials>>,
}

impl ObjectChanges {
    /// Waits until some object was added, modified or deleted. Cancel safe: a change during which no call waited is reported
    /// by the next call.
    pub async fn next(&mut self) {
        let config_maps = self.config_maps.iter_mut().map(|seen| changed(seen).boxed());
        let secrets = self.secrets.iter_mut().map(|seen| changed(seen).boxed());
        let bundles = self.bundles.iter_mut().map(|seen| changed(seen).boxed());
        let certificates = self.certificates.iter_mut().map(|seen| changed(seen).boxed());
        let objects = config_maps.chain(secrets).chain(bundles);
        let all: Vec<BoxFuture<'_, ()>> = objects.chain(certificates).collect();
        if all.is_empty() {
            return pending().await;
        }
        select_all(all).await;
    }
}

/// What has no task any more that keeps it up to date never changes.
async fn changed<T>(seen: &mut watch::Receiver<T>) {
    if seen.changed().await.is_err() {
        pending::<()>().await;
    }
}
