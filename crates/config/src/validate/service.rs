//! Rules for the HTTP servers, sources, the runtime, logs, images and shutdown.

use std::net::IpAddr;
use std::path::{Component, Path};

use super::{Check, label};
use crate::KUBERNETES_VERSION;
use crate::duration::GoDuration;

const SECOND: GoDuration = GoDuration::from_secs(1);

const CIPHER_SUITES: &[&str] = &[
    "TLS_AES_128_GCM_SHA256",
    "TLS_AES_256_GCM_SHA384",
    "TLS_CHACHA20_POLY1305_SHA256",
    "TLS_ECDHE_ECDSA_WITH_AES_128_CBC_SHA",
    "TLS_ECDHE_ECDSA_WITH_AES_128_CBC_SHA256",
    "TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256",
    "TLS_ECDHE_ECDSA_WITH_AES_256_CBC_SHA",
    "TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384",
    "TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305",
    "TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256",
    "TLS_ECDHE_ECDSA_WITH_RC4_128_SHA",
    "TLS_ECDHE_RSA_WITH_3DES_EDE_CBC_SHA",
    "TLS_ECDHE_RSA_WITH_AES_128_CBC_SHA",
    "TLS_ECDHE_RSA_WITH_AES_128_CBC_SHA256",
    "TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256",
    "TLS_ECDHE_RSA_WITH_AES_256_CBC_SHA",
    "TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384",
    "TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305",
    "TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305_SHA256",
    "TLS_ECDHE_RSA_WITH_RC4_128_SHA",
    "TLS_RSA_WITH_3DES_EDE_CBC_SHA",
    "TLS_RSA_WITH_AES_128_CBC_SHA",
    "TLS_RSA_WITH_AES_128_CBC_SHA256",
    "TLS_RSA_WITH_AES_128_GCM_SHA256",
    "TLS_RSA_WITH_AES_256_CBC_SHA",
    "TLS_RSA_WITH_AES_256_GCM_SHA384",
    "TLS_RSA_WITH_RC4_128_SHA",
];

impl Check<'_> {
    pub(super) fn service(&mut self) {
        let config = self.config;
        self.range("port", config.port.into(), 1..=65535);
        self.range("readOnlyPort", config.read_only_port.into(), 0..=65535);
        self.range("healthzPort", config.healthz_port.into(), 0..=65535);
        for (field, value) in
            [("address", &config.address), ("healthzBindAddress", &config.healthz_bind_address)]
        {
            if value.parse::<IpAddr>().is_err() {
                self.invalid(field, format!("{value:?}"), "an IP address");
            }
        }
        self.one_of("authorization.mode", &config.authorization.mode, &["AlwaysAllow", "Webhook"]);
        self.one_of(
            "tlsMinVersion",
            &config.tls_min_version,
            &["", "VersionTLS10", "VersionTLS11", "VersionTLS12", "VersionTLS13"],
        );
        for suite in &config.tls_cipher_suites {
            if !CIPHER_SUITES.contains(&suite.as_str()) {
                self.invalid("tlsCipherSuites", format!("{suite:?}"), "the name of a TLS cipher suite");
            }
        }
        if config.container_runtime_endpoint.is_empty() {
            self.invalid("containerRuntimeEndpoint", "empty", "the address of the runtime's socket");
        }
        for (field, value) in [
            ("syncFrequency", config.sync_frequency),
            ("fileCheckFrequency", config.file_check_frequency),
            ("httpCheckFrequency", config.http_check_frequency),
        ] {
            if value <= GoDuration::ZERO {
                self.invalid(field, value, "more than 0s");
            }
        }
        self.at_least_time("runtimeRequestTimeout", config.runtime_request_timeout, GoDuration::ZERO);
        if config.enable_system_log_query && !config.enable_system_log_handler {
            self.conflict("enableSystemLogQuery true needs enableSystemLogHandler true");
        }
        if let Some(tracing) = &config.tracing {
            if let Some(rate) = tracing.sampling_rate_per_million {
                self.range("tracing.samplingRatePerMillion", rate.into(), 0..=1_000_000);
            }
            if let Some(endpoint) = tracing.endpoint.as_deref().filter(|endpoint| !is_grpc_target(endpoint)) {
                let allowed = "host:port, or a gRPC target with the scheme dns, unix or unix-abstract";
                self.invalid("tracing.endpoint", format!("{endpoint:?}"), allowed);
            }
        }
        self.hidden_metrics();
    }

    /// Only the previous minor version, so that an operator notices what the next one hides.
    fn hidden_metrics(&mut self) {
        let version = &self.config.show_hidden_metrics_for_version;
        let previous = previous_minor_version();
        if !version.is_empty() && *version != previous {
            let allowed = format!("empty or {previous}, the previous minor version");
            self.invalid("showHiddenMetricsForVersion", format!("{version:?}"), allowed);
        }
    }

    pub(super) fn logs(&mut self) {
        let config = self.config;
        if config.container_log_max_files <= 1 {
            self.invalid("containerLogMaxFiles", config.container_log_max_files, "2 or more");
        }
        self.at_least("containerLogMaxWorkers", config.container_log_max_workers.into(), 1);
        let interval = config.container_log_monitor_interval;
        self.at_least_time("containerLogMonitorInterval", interval, GoDuration::from_secs(3));
        let size = model::Amount::parse(&config.container_log_max_size);
        if !size.is_ok_and(|size| size > model::Amount::ZERO) {
            let value = format!("{:?}", config.container_log_max_size);
            self.invalid("containerLogMaxSize", value, "a quantity above 0, such as 10Mi");
        }
        if !is_plain_absolute(&config.pod_logs_dir) {
            let value = format!("{:?}", config.pod_logs_dir);
            self.invalid("podLogsDir", value, "an absolute path in ASCII without ., .. or a / at the end");
        }
        let logging = &config.logging;
        self.one_of("logging.format", &logging.format, &["text", "json"]);
        self.at_least_time("logging.flushFrequency", logging.flush_frequency, GoDuration::ZERO);
        let top = i64::from(i32::MAX);
        self.range("logging.verbosity", logging.verbosity.into(), 0..=top);
        if !logging.vmodule.is_empty() && logging.format != "text" {
            self.conflict("logging.vmodule (--vmodule) is only understood with logging.format text");
        }
        for rule in &logging.vmodule {
            if rule.file_pattern.is_empty() || rule.file_pattern.contains(['=', ',']) {
                let value = format!("{:?}", rule.file_pattern);
                self.invalid("logging.vmodule", value, "a file pattern without = and ,");
            }
        }
        if logging.options.text.split_stream {
            self.needs_gate("logging.options.text.splitStream", "LoggingAlphaOptions");
        }
        if logging.options.json.split_stream {
            self.needs_gate("logging.options.json.splitStream", "LoggingAlphaOptions");
        }
    }

    pub(super) fn images(&mut self) {
        let config = self.config;
        let (low, high) = (config.image_gc_low_threshold_percent, config.image_gc_high_threshold_percent);
        self.range("imageGCHighThresholdPercent", high.into(), 0..=100);
        self.range("imageGCLowThresholdPercent", low.into(), 0..=100);
        if low >= high {
            self.invalid(
                "imageGCLowThresholdPercent",
                low,
                format!("below {} {high}", label("imageGCHighThresholdPercent")),
            );
        }
        let (least, most) = (config.image_minimum_gc_age, config.image_maximum_gc_age);
        self.at_least_time("imageMinimumGCAge", least, GoDuration::ZERO);
        if !most.is_zero() && most <= least {
            self.invalid(
                "imageMaximumGCAge",
                most,
                format!("0s (off) or more than {} {least}", label("imageMinimumGCAge")),
            );
        }
        self.at_least("registryPullQPS", config.registry_pull_qps.into(), 0);
        self.at_least("registryBurst", config.registry_burst.into(), 0);
        if let Some(pulls) = config.max_parallel_image_pulls {
            self.at_least("maxParallelImagePulls", pulls.into(), 1);
            if pulls > 1 && config.serialize_image_pulls {
                self.conflict(format!(
                    "maxParallelImagePulls is {pulls}, but must be 1 or not set while serializeImagePulls (--serialize-image-pulls) is true"
                ));
            }
        }
        self.image_policy();
        self.signed_by_cluster();
    }

    /// Without its gate, certificates that the cluster signs would not be renewed.
    fn signed_by_cluster(&mut self) {
        if self.config.server_tls_bootstrap {
            self.needs_gate("serverTLSBootstrap", "RotateKubeletServerCertificate");
        }
    }

    fn image_policy(&mut self) {
        let config = self.config;
        let policy = config.image_pull_credentials_verification_policy.as_str();
        self.one_of(
            "imagePullCredentialsVerificationPolicy",
            policy,
            &["NeverVerify", "NeverVerifyPreloadedImages", "NeverVerifyAllowlistedImages", "AlwaysVerify"],
        );
        // An empty list is allowed: every image is verified then.
        let is_listed = !config.preloaded_images_verification_allowlist.is_empty();
        if is_listed && policy != "NeverVerifyAllowlistedImages" {
            self.conflict(
                "preloadedImagesVerificationAllowlist must be set only if imagePullCredentialsVerificationPolicy is NeverVerifyAllowlistedImages",
            );
        }
        for pattern in &config.preloaded_images_verification_allowlist {
            if !is_image_pattern(pattern) {
                self.invalid(
                    "preloadedImagesVerificationAllowlist",
                    format!("{pattern:?}"),
                    "the name of an image without tag and digest, or its beginning with /* at the end",
                );
            }
        }
        if policy != "NeverVerifyPreloadedImages" {
            self.needs_gate("imagePullCredentialsVerificationPolicy", "KubeletEnsureSecretPulledImages");
        }
    }

    pub(super) fn shutdown(&mut self) {
        let config = self.config;
        let (whole, critical) = (config.shutdown_grace_period, config.shutdown_grace_period_critical_pods);
        if critical > whole {
            self.invalid(
                "shutdownGracePeriodCriticalPods",
                critical,
                format!("at most shutdownGracePeriod {whole}"),
            );
        }
        for (field, value) in [("shutdownGracePeriod", whole), ("shutdownGracePeriodCriticalPods", critical)]
        {
            if !value.is_zero() && value < SECOND {
                self.invalid(field, value, "0s (off) or 1s and more");
            }
            if !value.is_zero() {
                self.needs_gate(field, "GracefulNodeShutdown");
            }
        }
        let by_priority = &config.shutdown_grace_period_by_pod_priority;
        if by_priority.is_empty() {
            return;
        }
        self.needs_gate("shutdownGracePeriodByPodPriority", "GracefulNodeShutdownBasedOnPodPriority");
        if !whole.is_zero() || !critical.is_zero() {
            self.conflict(
                "shutdownGracePeriodByPodPriority cannot be set together with shutdownGracePeriod or shutdownGracePeriodCriticalPods",
            );
        }
        for entry in by_priority {
            let (priority, seconds) = (entry.priority, entry.shutdown_grace_period_seconds);
            if seconds < 0 {
                let value = format!("{seconds} seconds for priority {priority}");
                self.invalid("shutdownGracePeriodByPodPriority", value, "0 or more");
            }
        }
    }
}

/// `1.35` for `v1.36.2`.
fn previous_minor_version() -> String {
    let mut numbers = KUBERNETES_VERSION.trim_start_matches('v').split('.');
    let (major, minor) = (numbers.next().unwrap_or_default(), numbers.next().unwrap_or_default());
    let minor: u32 = minor.parse().unwrap_or_default();
    format!("{major}.{}", minor.saturating_sub(1))
}

/// A name as gRPC resolves it, of which the port is a number if there is one.
fn is_grpc_target(endpoint: &str) -> bool {
    let (scheme, rest) = match endpoint.split_once("://") {
        Some((scheme, rest)) => (scheme, rest),
        None if endpoint.contains("//") => return false,
        None => ("dns", endpoint),
    };
    let authority = rest.split('/').next().unwrap_or_default();
    let port = authority.rsplit_once(':').map_or("", |(_, port)| port);
    let is_port = authority.ends_with(']') || port.bytes().all(|byte| byte.is_ascii_digit());
    let is_plain = !endpoint.contains(|c: char| c.is_control() || c == ' ');
    ["dns", "unix", "unix-abstract"].contains(&scheme) && is_port && is_plain
}

fn is_plain_absolute(path: &str) -> bool {
    let plain =
        Path::new(path).components().all(|part| matches!(part, Component::RootDir | Component::Normal(_)));
    let rebuilt: std::path::PathBuf = Path::new(path).components().collect();
    path.is_ascii() && path.starts_with('/') && plain && rebuilt.as_os_str() == path
}

/// `registry.example/team/app`, or `registry.example/*` for all below.
fn is_image_pattern(pattern: &str) -> bool {
    let (name, is_prefix) = match pattern.strip_suffix("/*") {
        Some(name) => (name, true),
        None => (pattern, false),
    };
    let has_tag = !is_prefix && name.rsplit('/').next().is_some_and(|last| last.contains(':'));
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "-._:/[]".contains(c);
    !name.is_empty() && !name.ends_with('/') && !has_tag && name.chars().all(is_plain)
}
