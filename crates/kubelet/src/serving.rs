//! The certificates of the main port: the serving pair (from files, signed by the cluster, or self-signed) and the
//! certificate authorities of clients. Files are reloaded when they change.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use agent::Agent;
use api_agent::certificates::{ClusterSigned, PairStore, SelfSigned};
use base_agent::context::Context;
use cluster::X509;
use config::Resolved;
use futures_util::StreamExt;
use model::{CertificateNames, PemPair};
use ports::{Clock, Cluster, Files};
use server::{ClientCa, ServingPair};
use tokio::sync::watch;

use crate::start_error::StartError;

/// Certificates and keys have a few kilobytes; a bundle of authorities may be larger.
const FILE_LIMIT: usize = 1 << 20;
/// How often files are read without a hint that they changed.
const RELOAD_PERIOD: Duration = Duration::from_secs(60);

/// The latest serving pair and client authorities of the main port.
#[derive(Debug)]
pub(crate) struct Certificates {
    pub(crate) pair: watch::Receiver<Option<ServingPair>>,
    /// `None`: client certificates are not used for authentication.
    pub(crate) client_ca: Option<watch::Receiver<ClientCa>>,
}

/// Loads the certificates and starts the tasks that reload them.
pub(crate) async fn load(
    resolved: &Resolved,
    agent: &Agent,
    cluster: Option<&Arc<dyn Cluster>>,
) -> Result<Certificates, StartError> {
    let ctx = agent.context();
    let features = ctx.node_facts.features;
    let signer = cluster.filter(|_| resolved.kubelet.server_tls_bootstrap);
    let pair = match (pair_files(resolved), signer) {
        (Some(files), _) => follow_pair(ctx, files, features.reload_serving_pair).await?,
        (None, Some(cluster)) => signed_pair(resolved, agent, cluster.clone()),
        (None, None) => own_pair(resolved, ctx).await?,
    };
    let authority = &resolved.kubelet.authentication.x509.client_ca_file;
    let client_ca = if authority.is_empty() {
        None
    } else {
        Some(follow_client_ca(ctx, PathBuf::from(authority), features.reload_client_ca).await?)
    };
    Ok(Certificates { pair, client_ca })
}

/// `tlsCertFile` and `tlsPrivateKeyFile`, if both are set.
fn pair_files(resolved: &Resolved) -> Option<[PathBuf; 2]> {
    let (certificate, key) = (&resolved.kubelet.tls_cert_file, &resolved.kubelet.tls_private_key_file);
    (!certificate.is_empty() && !key.is_empty()).then(|| [PathBuf::from(certificate), PathBuf::from(key)])
}

async fn follow_pair(
    ctx: &Arc<Context>,
    files: [PathBuf; 2],
    reloads: bool,
) -> Result<watch::Receiver<Option<ServingPair>>, StartError> {
    let parse = |contents: &[Vec<u8>]| match contents {
        [certificate, key] => ServingPair::from_pem(certificate, key).map(Some).map_err(|e| e.to_string()),
        _ => Err("a certificate and a key are needed".to_owned()),
    };
    follow(ctx, "tlsCertFile, tlsPrivateKeyFile", files.to_vec(), parse, reloads).await
}

async fn follow_client_ca(
    ctx: &Arc<Context>,
    file: PathBuf,
    reloads: bool,
) -> Result<watch::Receiver<ClientCa>, StartError> {
    let parse =
        |contents: &[Vec<u8>]| ClientCa::from_pem(&contents.concat()).map_err(|error| error.to_string());
    follow(ctx, "authentication.x509.clientCAFile", vec![file], parse, reloads).await
}

/// Loads files, which must be valid now, and if `reloads`, again whenever they change: a later error is logged, and the last
/// valid contents stay in use.
async fn follow<T: Send + Sync + 'static>(
    ctx: &Arc<Context>,
    field: &'static str,
    files: Vec<PathBuf>,
    parse: impl Fn(&[Vec<u8>]) -> Result<T, String> + Send + 'static,
    reloads: bool,
) -> Result<watch::Receiver<T>, StartError> {
    let contents = read(&*ctx.files, &files).await;
    let parsed = contents.and_then(|contents| Ok((parse(&contents)?, contents)));
    let (value, mut seen) = parsed.map_err(|why| StartError::Certificates(format!("{field}: {why}")))?;
    let (sender, receiver) = watch::channel(value);
    if !reloads {
        return Ok(receiver);
    }
    let (disk, clock) = (ctx.files.clone(), ctx.clock);
    ctx.tasks.spawn("certificate files", async move {
        loop {
            changed(&*disk, clock, &files).await;
            let outcome = match read(&*disk, &files).await {
                Ok(contents) if contents == seen => continue,
                Ok(contents) => parse(&contents).inspect(|_| seen = contents),
                Err(why) => Err(why),
            };
            match outcome {
                Ok(value) => {
                    tracing::info!(field, "Loaded new certificates");
                    sender.send_replace(value);
                }
                Err(why) => {
                    tracing::warn!(field, err = why, "Failed to load new certificates, keeping the old ones")
                }
            }
        }
    });
    Ok(receiver)
}

async fn read(disk: &dyn Files, files: &[PathBuf]) -> Result<Vec<Vec<u8>>, String> {
    let mut contents = Vec::new();
    for file in files {
        let content = disk.read_file(file, FILE_LIMIT, false).await;
        contents.push(content.map_err(|error| base_agent::error_chain::chain(&error))?);
    }
    Ok(contents)
}

/// Returns when one of the files may have changed, and after [`RELOAD_PERIOD`]. Their directories are watched, because
/// a file may be replaced, or be a link whose target changes.
async fn changed(disk: &dyn Files, clock: Clock, files: &[PathBuf]) {
    let mut directories: Vec<&Path> = files.iter().filter_map(|file| file.parent()).collect();
    directories.dedup();
    let changed = async {
        let mut hints = futures_util::stream::SelectAll::new();
        for directory in directories {
            // The period is enough for a directory that cannot be watched.
            hints.extend(disk.watch(directory).await.ok());
        }
        hints.next().await
    };
    tokio::select! {
        Some(_) = changed => {}
        () = clock.sleep_until(clock.mono() + RELOAD_PERIOD) => {}
    }
}

/// A pair that the cluster signs and this kubelet rotates; `None` until the first one is signed.
fn signed_pair(
    resolved: &Resolved,
    agent: &Agent,
    cluster: Arc<dyn Cluster>,
) -> watch::Receiver<Option<ServingPair>> {
    let ctx = agent.context();
    let (serves, pems) = watch::channel(None);
    let signed = ClusterSigned {
        store: PairStore {
            files: ctx.files.clone(),
            certificates: Arc::new(X509),
            dir: PathBuf::from(&resolved.flags.cert_dir),
            name: "kubelet-server",
        },
        cluster,
        clock: ctx.clock,
        rng: ctx.rng.branch(),
        node_name: ctx.settings.node_name.clone(),
        addresses: agent.node_addresses(),
        dns_name_suffices: ctx.node_facts.features.dns_only_serving_certificates,
        metrics: ctx.metrics.clone(),
        serves,
    };
    ctx.tasks.spawn("serving certificate", signed.run());
    served(ctx, pems)
}

/// The self-signed pair `kubelet.crt` and `kubelet.key` in the certificate directory, created if there is no valid one.
async fn own_pair(
    resolved: &Resolved,
    ctx: &Arc<Context>,
) -> Result<watch::Receiver<Option<ServingPair>>, StartError> {
    let (serves, pems) = watch::channel(None);
    let node = &ctx.settings.node_name;
    let mut names = CertificateNames {
        common_name: node.clone(),
        ip_addresses: ctx.host_ips().iter().copied().collect(),
        ..CertificateNames::default()
    };
    match node.parse() {
        Ok(ip) => names.ip_addresses.insert(ip),
        Err(_) => names.dns_names.insert(node.clone()),
    };
    let own = SelfSigned {
        files: ctx.files.clone(),
        certificates: Arc::new(X509),
        clock: ctx.clock,
        rng: ctx.rng.branch(),
        dir: PathBuf::from(&resolved.flags.cert_dir),
        names,
        serves,
    };
    let facts = own.prepare().await.map_err(|error| StartError::Certificates(error.to_string()))?;
    ctx.tasks.spawn("serving certificate", own.run(facts));
    Ok(served(ctx, pems))
}

/// Parses the PEM texts for the server.
fn served(
    ctx: &Arc<Context>,
    mut pems: watch::Receiver<Option<Arc<PemPair>>>,
) -> watch::Receiver<Option<ServingPair>> {
    let parse = |pem: Option<Arc<PemPair>>| {
        let pem = pem?;
        ServingPair::from_pem(pem.certificate.as_bytes(), pem.key.as_bytes())
            .inspect_err(|error| tracing::error!(err = %error, "Failed to load serving certificate"))
            .ok()
    };
    let now = parse(pems.borrow_and_update().clone());
    let (pairs, receiver) = watch::channel(now);
    ctx.tasks.spawn("served certificate", async move {
        while pems.changed().await.is_ok() {
            let now = parse(pems.borrow_and_update().clone());
            pairs.send_replace(now);
        }
    });
    receiver
}
