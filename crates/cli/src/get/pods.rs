//! Pods and containers, as rows.

use explain_core::times::span;
use jiff::Timestamp;
use model::explain::{ContainerExplanation, PodExplanation, PodExplanations, Verdict};

use super::row::{Document, Row};

impl Document for PodExplanations {
    /// Pods that are gone have no source.
    fn listed(mut self) -> Self {
        self.pods.retain(|pod| !pod.source.is_empty());
        self
    }

    fn is_empty(&self) -> bool {
        self.pods.is_empty()
    }

    fn problems(&self) -> &[String] {
        &[]
    }
}

impl Row for PodExplanation {
    const PATH: &'static str = "/v1/pods";
    const HEADING: &'static [&'static str] =
        &["NAMESPACE", "NAME", "READY", "STATE", "RESTARTS", "KNOWN FOR"];
    const WIDE: &'static [&'static str] = &["UID", "FROM", "WHY"];
    type Document = PodExplanations;

    fn rows(document: PodExplanations) -> Vec<Self> {
        document.pods
    }

    fn cells(&self, now: Timestamp) -> Vec<String> {
        let ready = self.containers.iter().filter(|container| container.is_ready).count();
        let restarts: i32 = self.containers.iter().map(|container| container.restarts).sum();
        vec![
            self.namespace.clone(),
            self.name.clone(),
            format!("{ready}/{}", self.containers.len()),
            state(self),
            restarts.to_string(),
            self.trail.first().map(|first| span(first.began, now)).unwrap_or_default(),
        ]
    }

    fn wide_cells(&self, _now: Timestamp) -> Vec<String> {
        vec![self.uid.clone(), self.source.clone(), self.summary.clone()]
    }

    fn name(&self) -> String {
        format!("pod/{}/{}", self.namespace, self.name)
    }
}

/// One word, as in kubectl's column STATUS: the reason why it waits or failed.
fn state(pod: &PodExplanation) -> String {
    match (pod.verdict, pod.causes.first()) {
        (Verdict::Waiting | Verdict::Failed, Some(cause)) => cause.reason.clone(),
        (Verdict::Failed, None) => "Failed".to_owned(),
        (Verdict::Waiting, None) => "Waiting".to_owned(),
        (Verdict::Fine, _) if pod.containers.iter().any(|container| container.state == "running") => {
            "Running".to_owned()
        }
        (Verdict::Fine, _) => "Completed".to_owned(),
    }
}

/// A container with its pod.
#[derive(Debug)]
pub(super) struct ContainerRow {
    namespace: String,
    pod: String,
    pod_uid: String,
    container: ContainerExplanation,
}

impl Row for ContainerRow {
    const PATH: &'static str = "/v1/pods";
    const HEADING: &'static [&'static str] =
        &["NAMESPACE", "POD", "CONTAINER", "STATE", "READY", "RESTARTS", "FOR", "LAST END"];
    const WIDE: &'static [&'static str] = &["POD UID"];
    type Document = PodExplanations;

    fn rows(document: PodExplanations) -> Vec<Self> {
        let rows = document.pods.into_iter().flat_map(|pod| {
            let PodExplanation { namespace, name, uid, containers, .. } = pod;
            containers.into_iter().map(move |container| Self {
                namespace: namespace.clone(),
                pod: name.clone(),
                pod_uid: uid.clone(),
                container,
            })
        });
        rows.collect()
    }

    fn cells(&self, now: Timestamp) -> Vec<String> {
        let container = &self.container;
        vec![
            self.namespace.clone(),
            self.pod.clone(),
            container.name.clone(),
            container.state.clone(),
            if container.is_ready { "yes" } else { "no" }.to_owned(),
            container.restarts.to_string(),
            container.since.map(|since| span(since, now)).unwrap_or_default(),
            container.last_end.clone(),
        ]
    }

    fn wide_cells(&self, _now: Timestamp) -> Vec<String> {
        vec![self.pod_uid.clone()]
    }

    fn name(&self) -> String {
        format!("container/{}/{}/{}", self.namespace, self.pod, self.container.name)
    }
}

#[cfg(test)]
mod tests {
    use model::explain::Cause;

    use super::super::rows_table;
    use super::*;

    #[test]
    fn pods_and_containers_are_tables_like_those_of_kubectl() {
        let at = |second| Timestamp::from_second(second).unwrap();
        let container = ContainerExplanation {
            name: "app".to_owned(),
            state: "running".to_owned(),
            since: Some(at(10)),
            is_ready: true,
            restarts: 2,
            last_end: "Error, exit code 1".to_owned(),
            ..ContainerExplanation::default()
        };
        let up = PodExplanation {
            namespace: "default".to_owned(),
            name: "web".to_owned(),
            source: "the API".to_owned(),
            containers: vec![container],
            ..PodExplanation::default()
        };
        let cause = Cause { reason: "ImagePullBackOff".to_owned(), ..Cause::default() };
        let waiting = PodExplanation {
            name: "db".to_owned(),
            verdict: Verdict::Waiting,
            causes: vec![cause],
            ..up.clone()
        };
        expect_test::expect![[r#"
            NAMESPACE   NAME   READY   STATE              RESTARTS   KNOWN FOR
            default     web    1/1     Running            2
            default     db     1/1     ImagePullBackOff   2
        "#]]
        .assert_eq(&rows_table(&[up.clone(), waiting], false, at(70)));
        let document = PodExplanations { pods: vec![up], manifest_problems: Vec::new() };
        let rows = ContainerRow::rows(document.listed());
        expect_test::expect![[r#"
            NAMESPACE   POD   CONTAINER   STATE     READY   RESTARTS   FOR     LAST END
            default     web   app         running   yes     2          1 min   Error, exit code 1
        "#]]
        .assert_eq(&rows_table(&rows, false, at(70)));
        assert_eq!(rows[0].name(), "container/default/web/app");
    }
}
