//! The certificates of pods (`podCertificate` sources of projected volumes).
//!
//! Owns one task for each pod that has such sources, with the keys and certificates of this pod in memory, and one watch of
//! the node's PodCertificateRequests, which exists while there is such a pod. What follows from the state of a request is decided in
//! `volumes_core::pod_certificate`. A key is neither logged nor written to disk here; the volume shows it.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Weak};
use std::time::Duration;

use api_core::reflector::ObjectKey;
use api_core::retry::compute_retry_delay;
use base_agent::context::Context;
use base_agent::rng::Rng;
use model::k8s::{Pod, PodCertificateRequest};
use model::{Credential, MonoTime, PodKey, PodKeyType, PodRef, PrivateKey};
use parking_lot::Mutex;
use ports::Certificates;
use ports::certificates::CertificateError;
use ports::cluster::{ClusterError, Selection};
use tokio::sync::watch;
use volumes_core::pod_certificate::{
    CertificateId, CertificateInputs, CertificateSource, CertificateState, CertificateStep, CredentialError,
    MAX_CERTIFICATES, RequestFacts, SeenRequest, certificate_sources, compute_certificate_request,
    compute_certificate_step, compute_create_delay, key_type, service_account_of,
};

use super::source::Access;
use crate::metrics::PodCertificateMetrics;
use crate::reflector::{CollectionOf, Reflector, Store, StoreReader, own_node};

/// The wall clock may be set, so that deadlines are compared with it at least this often.
const CLOCK_CHECK_INTERVAL: Duration = Duration::from_secs(600);

/// What the sources of a pod show, or why not.
pub(super) type Credentials = BTreeMap<CertificateId, Result<Credential, CredentialError>>;

/// The requests of this node, and what keys are made with. Holds a weak reference; the tasks of pods own the watch.
#[derive(Debug)]
pub(super) struct PodCertificates {
    certificates: Arc<dyn Certificates>,
    requests: Mutex<Weak<StoreReader<PodCertificateRequest>>>,
}

/// The certificates of one pod, which may have none. Their task ends when the last clone is dropped.
#[derive(Clone, Debug)]
pub(super) struct Issued {
    sources: Vec<CertificateSource>,
    seen: watch::Receiver<Credentials>,
}

impl Issued {
    /// What these sources show now. One volume asks for its own only: a pod may have thousands of them, though too many are refused.
    pub(super) fn get(&self, ids: &BTreeSet<CertificateId>) -> Credentials {
        let seen = self.seen.borrow();
        ids.iter().filter_map(|id| Some((id.clone(), seen.get(id)?.clone()))).collect()
    }

    /// `None` if there are none.
    pub(super) fn changes(&self) -> Option<watch::Receiver<Credentials>> {
        (!self.sources.is_empty()).then(|| self.seen.clone())
    }
}

impl PodCertificates {
    pub(super) fn new(certificates: Arc<dyn Certificates>) -> Self {
        Self { certificates, requests: Mutex::default() }
    }

    /// Requests the certificates of the pod. `before`: those of an earlier version of the pod, which stay in use.
    pub(super) fn of(
        &self,
        ctx: &Arc<Context>,
        access: &Access,
        pod: &Arc<Pod>,
        before: Option<&Issued>,
    ) -> Issued {
        let sources = certificate_sources(pod);
        if let Some(before) = before.filter(|before| before.sources == sources) {
            return before.clone();
        }
        let (count, is_too_many) = (sources.len(), sources.len() > MAX_CERTIFICATES);
        let initial = |source: &CertificateSource| {
            let error =
                if is_too_many { CredentialError::TooMany { count } } else { CredentialError::NotIssued };
            (source.id.clone(), Err(error))
        };
        let (sender, seen) = watch::channel(sources.iter().map(initial).collect());
        if !sources.is_empty() && !is_too_many {
            let issuer = Issuer {
                ctx: ctx.clone(),
                access: access.clone(),
                certificates: self.certificates.clone(),
                pod: pod.clone(),
                rng: ctx.rng.branch(),
                requests: self.requests(ctx, access),
                held: sources.iter().map(Certificate::new).collect(),
            };
            ctx.tasks.spawn_isolated("pod certificates", issuer.run(sender));
        }
        Issued { sources, seen }
    }

    /// Starts the watch, unless another pod has it already.
    fn requests(&self, ctx: &Arc<Context>, access: &Access) -> Arc<StoreReader<PodCertificateRequest>> {
        let mut known = self.requests.lock();
        if let Some(requests) = known.upgrade() {
            return requests;
        }
        let (sender, seen) = watch::channel(Store::default());
        let selection = Selection {
            fields: Some(format!("spec.nodeName={}", ctx.settings.node_name)),
            ..Selection::default()
        };
        let of: CollectionOf<PodCertificateRequest> = |cluster| cluster.pod_certificate_requests();
        let what = "PodCertificateRequest";
        let reflector = Reflector::new(ctx, &access.cluster, of, what, selection, sender.clone());
        ctx.tasks.spawn_isolated("PodCertificateRequest reflector", async move {
            tokio::select! {
                () = reflector.run() => {}
                () = sender.closed() => {}
            }
        });
        let requests = Arc::new(seen);
        *known = Arc::downgrade(&requests);
        requests
    }
}

/// Why no request was created.
#[derive(Debug, thiserror::Error)]
enum CreateError {
    #[error("failed to fetch service account: {0}")]
    Account(ClusterError),
    #[error("the Node of this kubelet is not known yet")]
    NoNode,
    #[error(transparent)]
    Key(#[from] CertificateError),
    #[error("failed to create PodCertificateRequest: {0}")]
    Create(ClusterError),
}

impl CreateError {
    const fn retry_after(&self) -> Option<Duration> {
        match self {
            Self::Account(error) | Self::Create(error) => error.retry_after(),
            Self::NoNode | Self::Key(_) => None,
        }
    }
}

/// One certificate.
#[derive(Debug)]
struct Certificate {
    source: CertificateSource,
    state: CertificateState,
    /// Requests in a row that could not be created.
    failures: u32,
    retry_at: Option<MonoTime>,
    problem: Option<String>,
}

impl Certificate {
    fn new(source: &CertificateSource) -> Self {
        let state = CertificateState::default();
        Self { source: source.clone(), state, failures: 0, retry_at: None, problem: None }
    }

    fn credential(&self) -> Result<Credential, CredentialError> {
        key_type(&self.source.projection.key_type)?;
        match (self.state.credential(), &self.problem) {
            (Err(CredentialError::NotIssued), Some(why)) => {
                Err(CredentialError::NotRequested { why: why.clone() })
            }
            (credential, _) => credential,
        }
    }
}

/// Requests and renews the certificates of one pod.
struct Issuer {
    ctx: Arc<Context>,
    access: Access,
    certificates: Arc<dyn Certificates>,
    pod: Arc<Pod>,
    /// Spreads the renewals of many pods.
    rng: Rng,
    requests: Arc<StoreReader<PodCertificateRequest>>,
    held: Vec<Certificate>,
}

impl Issuer {
    /// Runs until no volume reads the certificates any more.
    async fn run(mut self, sender: watch::Sender<Credentials>) {
        let pod = PodRef::of(&self.pod);
        let report = self.ctx.metrics.get::<PodCertificateMetrics>().pod(&pod.uid);
        let mut requests = StoreReader::clone(&self.requests);
        loop {
            requests.mark_unchanged();
            let wake_at = tokio::select! {
                wake_at = self.pass(&sender) => wake_at,
                () = sender.closed() => return,
            };
            let states = self
                .held
                .iter()
                .map(|held| (held.source.projection.signer_name.clone(), held.state.status()));
            report.set(states);
            let clock = self.ctx.clock;
            let check_at = clock.mono() + CLOCK_CHECK_INTERVAL;
            tokio::select! {
                () = sender.closed() => return,
                () = clock.sleep_until(wake_at.map_or(check_at, |at| at.min(check_at))) => {}
                changed = requests.changed() => {
                    // Only the stop of the kubelet ends a watch that is in use.
                    if changed.is_err() {
                        return;
                    }
                }
            }
        }
    }

    /// Does what is due. Returns when something is due next.
    async fn pass(&mut self, sender: &watch::Sender<Credentials>) -> Option<MonoTime> {
        let mut wake_at: Option<MonoTime> = None;
        for index in 0..self.held.len() {
            let next = self.advance(index).await;
            wake_at = wake_at.into_iter().chain(next).min();
            self.publish(sender);
        }
        wake_at
    }

    fn publish(&self, sender: &watch::Sender<Credentials>) {
        let all: Credentials =
            self.held.iter().map(|held| (held.source.id.clone(), held.credential())).collect();
        sender.send_if_modified(|known| {
            let is_changed = *known != all;
            *known = all;
            is_changed
        });
    }

    /// Takes one certificate as far as it goes now.
    async fn advance(&mut self, index: usize) -> Option<MonoTime> {
        let kind = key_type(&self.held.get(index)?.source.projection.key_type).ok()?;
        loop {
            let step = self.step(self.held.get(index)?);
            match step {
                CertificateStep::Wait { until } => return until,
                CertificateStep::Create => {
                    let created = self.create(&self.held.get(index)?.source, kind).await;
                    self.handle_created(index, created);
                }
                CertificateStep::Become { state, event, reason } => {
                    let pod = PodRef::of(&self.pod);
                    let held = self.held.get_mut(index)?;
                    let CertificateId { volume, index } = &held.source.id;
                    let request = held.state.pending().map(|pending| pending.name.as_str());
                    tracing::info!(%pod, volume, source = index, request, reason, "State of pod certificate changed");
                    held.state = state;
                    if let Some(event) = event {
                        self.ctx.recorder.warning(&pod, None, event.reason, event.message);
                    }
                }
            }
        }
    }

    fn step(&self, held: &Certificate) -> CertificateStep {
        let seen = self.requests.borrow();
        let namespace = self.pod.metadata.namespace.clone().unwrap_or_default();
        let key = held.state.pending().map(|pending| ObjectKey { namespace, name: pending.name.clone() });
        let found = key.map(|key| seen.find(&key));
        let request = match &found {
            Some(Ok(Some(request))) => SeenRequest::Found(request),
            Some(Ok(None)) if seen.is_complete => SeenRequest::Missing,
            // A request that cannot be decoded is not absent.
            Some(Ok(None) | Err(_)) | None => SeenRequest::Unknown,
        };
        compute_certificate_step(&CertificateInputs {
            state: &held.state,
            request,
            retry_at: held.retry_at,
            random: self.rng.share(),
            now: self.ctx.clock.now(),
        })
    }

    /// Creates a request; returns its name and the key.
    async fn create(
        &self,
        source: &CertificateSource,
        kind: PodKeyType,
    ) -> Result<(String, PrivateKey), CreateError> {
        let namespace = self.pod.metadata.namespace.as_deref().unwrap_or_default();
        let accounts = self.access.cluster.service_accounts();
        let account = accounts.get(namespace, service_account_of(&self.pod)).await;
        let account_uid = account.map_err(CreateError::Account)?.metadata.uid.unwrap_or_default();
        let node = own_node(&self.access.own_node.borrow()).ok_or(CreateError::NoNode)?;
        let PodKey { key, request: stub } = self.certificates.new_pod_key(kind).await?;
        let facts = RequestFacts {
            service_account_uid: &account_uid,
            node_name: &self.ctx.settings.node_name,
            node_uid: node.metadata.uid.as_deref().unwrap_or_default(),
            stub: &stub,
        };
        let request = compute_certificate_request(&self.pod, &source.projection, &facts);
        let created = self.access.cluster.pod_certificate_requests().create(namespace, &request).await;
        let name = created.map_err(CreateError::Create)?.metadata.name.unwrap_or_default();
        Ok((name, key))
    }

    fn handle_created(&mut self, index: usize, created: Result<(String, PrivateKey), CreateError>) {
        let (random, now) = (self.rng.share(), self.ctx.clock.now());
        let pod = PodRef::of(&self.pod);
        let Some(held) = self.held.get_mut(index) else { return };
        let CertificateId { volume, index } = &held.source.id;
        match created {
            Ok((name, key)) => {
                tracing::info!(%pod, volume, source = index, request = name, "Created PodCertificateRequest");
                held.state = held.state.requested(&name, key, random, now);
                (held.failures, held.retry_at, held.problem) = (0, None, None);
            }
            Err(error) => {
                held.failures = held.failures.saturating_add(1);
                let own = compute_create_delay(held.failures);
                held.retry_at = Some(now.mono + compute_retry_delay(own, error.retry_after(), random));
                let why = error.to_string();
                tracing::warn!(%pod, volume, source = index, err = why, "Failed to request pod certificate, retrying");
                held.problem = Some(why);
            }
        }
    }
}
