//! Credential provider plugins (`--image-credential-provider-config`).
//!
//! Owns the cached answers and the executions under way: concurrent equal requests share one execution. Requests and
//! answers are interpreted in `images_core::provider`.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use api_agent::objects::PodObjects;
use base_agent::error_chain::chain;
use base_agent::metrics::Metrics;
use config::{CredentialProvider, TokenAttributes};
use futures_util::FutureExt;
use futures_util::future::{BoxFuture, Shared, WeakShared, join_all};
use images_core::keyring::Keyring;
use images_core::provider::{
    AnswerCache, ProviderAccount, ProviderAnswer, compute_account, compute_owner, compute_request,
    is_asked_for, parse_answer, provider_image, provider_token,
};
use parking_lot::Mutex;
use ports::host::ProgramCall;
use ports::{Clock, Processes};

use crate::metrics::ImageMetrics;

/// Timeout of an execution.
const DEADLINE: Duration = Duration::from_secs(60);

/// All plugins, in the order in which their credentials are tried.
#[derive(Debug)]
pub(super) struct Providers {
    all: Vec<Arc<Provider>>,
}

#[derive(Debug)]
struct Provider {
    config: CredentialProvider,
    path: PathBuf,
    processes: Arc<dyn Processes>,
    clock: Clock,
    metrics: Metrics,
    answers: Mutex<AnswerCache>,
    running: Mutex<BTreeMap<(String, String), WeakShared<Run>>>,
}

type Run = BoxFuture<'static, Result<ProviderAnswer, String>>;

impl Providers {
    pub(super) fn new(
        configs: &[CredentialProvider],
        dir: &Path,
        processes: &Arc<dyn Processes>,
        clock: Clock,
        metrics: &Metrics,
    ) -> Self {
        let provider = |config: &CredentialProvider| {
            Arc::new(Provider {
                config: config.clone(),
                path: dir.join(&config.name),
                processes: processes.clone(),
                clock,
                metrics: metrics.clone(),
                answers: Mutex::default(),
                running: Mutex::default(),
            })
        };
        Self { all: configs.iter().map(provider).collect() }
    }

    /// The keyrings of the plugins that match this image, in order. A plugin that fails is skipped.
    pub(super) async fn keyrings(&self, image: &str, pod: &PodObjects) -> Vec<Keyring> {
        let Some(image) = provider_image(image) else { return Vec::new() };
        let matching = self.all.iter().filter(|provider| is_asked_for(&provider.config, &image));
        let answers = join_all(matching.map(|provider| provider.keyring(&image, pod))).await;
        answers.into_iter().flatten().collect()
    }
}

impl Provider {
    async fn keyring(self: &Arc<Self>, image: &str, pod: &PodObjects) -> Option<Keyring> {
        match self.request(image, pod).await {
            Ok(keyring) => Some(keyring),
            Err(problem) => {
                tracing::warn!(
                    provider = self.config.name,
                    image,
                    problem,
                    "Credential provider returned no credentials"
                );
                None
            }
        }
    }

    async fn request(self: &Arc<Self>, image: &str, pod: &PodObjects) -> Result<Keyring, String> {
        let attributes = self.config.token_attributes.as_ref();
        let account = match attributes {
            Some(attributes) => self.account(attributes, pod).await?,
            None => None,
        };
        let who = account.as_ref().map(|(account, token)| (account, token.as_str()));
        let owner = compute_owner(attributes, who);
        let source = who.map(|(account, _)| &account.account);
        let known = self.answers.lock().get(image, &owner, self.clock.mono()).cloned();
        let answer = match known {
            Some(answer) => answer,
            None => {
                let request = compute_request(&self.config, image, who);
                self.join_run(image, owner, request).await?
            }
        };
        Ok(answer.keyring(source))
    }

    /// The pod's service account with a token, if the pod has one.
    async fn account(
        &self,
        attributes: &TokenAttributes,
        pod: &PodObjects,
    ) -> Result<Option<(ProviderAccount, String)>, String> {
        let account = pod.service_account().await.map_err(|error| error.to_string())?;
        let required = compute_account(attributes, account.as_ref()).map_err(|error| error.to_string())?;
        let Some(required) = required else { return Ok(None) };
        let token = pod.token(&provider_token(attributes)).await.map_err(|error| error.to_string())?;
        Ok(Some((required, token)))
    }

    async fn join_run(
        self: &Arc<Self>,
        image: &str,
        owner: String,
        request: Vec<u8>,
    ) -> Result<ProviderAnswer, String> {
        let key = (image.to_owned(), owner);
        let run = {
            let mut running = self.running.lock();
            running.retain(|_, run| run.upgrade().is_some());
            match running.get(&key).and_then(WeakShared::upgrade) {
                Some(run) => run,
                None => {
                    let run: Shared<Run> = self.clone().run(key.clone(), request).boxed().shared();
                    running.extend(run.downgrade().map(|weak| (key, weak)));
                    run
                }
            }
        };
        run.await
    }

    async fn run(self: Arc<Self>, key: (String, String), input: Vec<u8>) -> Result<ProviderAnswer, String> {
        let call = ProgramCall {
            path: self.path.clone(),
            args: self.config.args.clone(),
            env: self.config.variables().into_iter().map(|(n, v)| (n.to_owned(), v.to_owned())).collect(),
            input,
            deadline: DEADLINE,
        };
        let began = self.clock.mono();
        let output = self.processes.run_program(&call).await;
        let answer = output.map_err(|error| chain(&error)).and_then(|output| {
            parse_answer(&self.config, &output).map_err(|error| format!("{}: {error}", self.path.display()))
        });
        let now = self.clock.mono();
        self.metrics.get::<ImageMetrics>().provider_ran(
            &self.config.name,
            now.saturating_since(began),
            answer.is_ok(),
        );
        if let Ok(answer) = &answer {
            self.answers.lock().put(&key.0, &key.1, answer, now);
        }
        answer
    }
}
