//! What an operator can do about a reason, where that is known.
//!
//! One table: a reason, words of the error that narrow it down, and the advice. The first row that fits a reason counts.

/// A row applies if the reason is one of these and the error contains one of the words, in any case; no words apply to every error.
struct Row {
    reasons: &'static [&'static str],
    words: &'static [&'static str],
    advice: &'static str,
}

const PULL: &[&str] = &["ErrImagePull", "ImagePullBackOff"];
const MOUNT: &[&str] = &["FailedMount", "FailedMapVolume", "FailedAttachVolume"];
const SANDBOX: &[&str] = &["FailedCreatePodSandBox", "NetworkNotReady"];
const CONFIG: &[&str] = &["CreateContainerConfigError"];
const RUN: &[&str] = &["RunContainerError", "CreateContainerError", "StartError"];
const RESTARTS: &[&str] = &["CrashLoopBackOff"];

const ROWS: &[Row] = &[
    Row {
        reasons: PULL,
        words: &["not found", "manifest unknown", "name unknown", "404"],
        advice: "Check the name and the tag of the image: the registry answers, and does not have it.",
    },
    Row {
        reasons: PULL,
        words: &["unauthorized", "authentication required", "denied", "401", "403"],
        advice: "Give the pod credentials for the registry (imagePullSecrets, or a credential provider on the node).",
    },
    Row {
        reasons: PULL,
        words: &["x509", "certificate", "http: server gave http response to https client"],
        advice: "Make the container runtime trust the certificate of the registry (for containerd: /etc/containerd/certs.d).",
    },
    Row {
        reasons: PULL,
        words: &[
            "no such host",
            "connection refused",
            "i/o timeout",
            "dial tcp",
            "deadline exceeded",
            "no route",
        ],
        advice: "Check from this node that the registry can be reached: name resolution, proxy, firewall.",
    },
    Row {
        reasons: PULL,
        words: &["no space left"],
        advice: "Free disk space where the container runtime keeps its images.",
    },
    Row {
        reasons: PULL,
        words: &[],
        advice: "Try crictl pull on this node; the error is that of the container runtime.",
    },
    Row {
        reasons: &["InvalidImageName"],
        words: &[],
        advice: "Correct the name of the image in the pod: lower case, and a tag or digest at its end.",
    },
    Row {
        reasons: &["ErrImageNeverPull"],
        words: &[],
        advice: "Load the image into the container runtime, or set imagePullPolicy to IfNotPresent.",
    },
    Row {
        reasons: RESTARTS,
        words: &["oomkilled"],
        advice: "Raise the container's memory limit, or find out why it needs more than the limit.",
    },
    Row {
        reasons: RESTARTS,
        words: &["exit code 126", "exit code 127"],
        advice: "Check the command of the container: the image does not have it, or it is not executable.",
    },
    Row {
        reasons: RESTARTS,
        words: &["exit code 0"],
        advice: "The program ends by itself: a container that is restarted always must keep running.",
    },
    Row {
        reasons: RESTARTS,
        words: &[],
        advice: "Read what it wrote before it ended: kubelet logs POD -c CONTAINER --previous, or kubectl logs --previous.",
    },
    Row {
        reasons: CONFIG,
        words: &["configmap", "secret", "key"],
        advice: "Create the object or key that is missing, or mark it optional; the container starts by itself then.",
    },
    Row {
        reasons: CONFIG,
        words: &["runasnonroot", "non-root", "non-numeric"],
        advice: "Set runAsUser to a number other than 0, or use an image whose user is one.",
    },
    Row {
        reasons: CONFIG,
        words: &["services have not yet been read"],
        advice: "The API server has not answered yet; a pod with enableServiceLinks: false does not wait for it.",
    },
    Row {
        reasons: RUN,
        words: &["no such file or directory", "executable file not found", "permission denied"],
        advice: "Check command and args of the container: the image does not have the program, or it is not executable.",
    },
    Row {
        reasons: MOUNT,
        words: &["configmap", "secret"],
        advice: "Create the object that is missing, or mark it optional; the pod starts by itself then.",
    },
    Row {
        reasons: MOUNT,
        words: &["hostpath type check failed"],
        advice: "Create the path on this node, or use the type DirectoryOrCreate.",
    },
    Row {
        reasons: MOUNT,
        words: &["not found in the list of registered csi drivers"],
        advice: "Start the node plugin of the CSI driver on this node; kubectl get csinode shows the drivers that it has.",
    },
    Row {
        reasons: MOUNT,
        words: &[
            "is not the name of a filesystem type",
            "must be an absolute path",
            "must not begin with '-'",
            "must not contain control characters",
            "must be a host name",
        ],
        advice: "Correct that field of the volume: mount and mkfs get it as an argument, so the node refuses what they could take for an option.",
    },
    Row {
        reasons: MOUNT,
        words: &["does not answer"],
        advice: "Bring back the server or disk of that filesystem; umount -f -l PATH gives it up, and the pod then sees an empty directory.",
    },
    Row {
        reasons: SANDBOX,
        words: &["cni", "network"],
        advice: "Check the network plugin of this node: a configuration in /etc/cni/net.d and its pods or programs.",
    },
    Row {
        reasons: SANDBOX,
        words: &["is reserved for"],
        advice: "The container runtime still removes a sandbox of the same name; this ends by itself unless the runtime hangs.",
    },
    Row {
        reasons: SANDBOX,
        words: &["runtimeclass", "runtime handler", "no runtime for"],
        advice: "Configure the handler of the pod's RuntimeClass in the container runtime of this node.",
    },
    Row {
        reasons: &["FailedPrepareDynamicResources"],
        words: &[],
        advice: "Check that the claim is allocated and the node plugin of its driver runs on this node.",
    },
    Row {
        reasons: &["WaitingForPreviousPod"],
        words: &[],
        advice: "See why that one does not end: kubelet why UID.",
    },
    Row {
        reasons: &["WaitingForPreemption"],
        words: &[],
        advice: "The pods that make way get their grace period; kubelet why lists those that do not end.",
    },
    Row {
        reasons: &["WaitingForRuntime"],
        words: &[],
        advice: "Look at the container runtime: crictl ps, journalctl -u containerd.",
    },
    Row {
        reasons: &["FailedKillPod"],
        words: &["device or resource busy"],
        advice: "End the process that the error names, or move it out of the directory; the node then unmounts it by itself.",
    },
    Row {
        reasons: &["FailedKillPod"],
        words: &[],
        advice: "The node goes on trying. If the container runtime hangs, restart it: running containers stay.",
    },
    Row {
        reasons: &["ReadinessProbeFailed", "StartupProbeFailed"],
        words: &["connection refused"],
        advice: "Nothing listens at the port of the probe: compare it with the port of the program, and its address (not 127.0.0.1).",
    },
    Row {
        reasons: &["ReadinessProbeFailed", "StartupProbeFailed"],
        words: &["context deadline exceeded", "timeout", "timed out"],
        advice: "The program answers too slowly: raise timeoutSeconds of the probe, or give the container more CPU.",
    },
    Row {
        reasons: &["OutOfcpu", "OutOfmemory", "OutOfpods", "OutOfephemeral-storage"],
        words: &[],
        advice: "Lower the requests of the pod, or remove pods from this node; kubelet get pods shows what they request.",
    },
    Row {
        reasons: &["UnexpectedAdmissionError"],
        words: &["devices", "device plugin"],
        advice: "Look whether the plugin runs and its devices are healthy: kubelet get plugins. Then create the pod again; a controller does so by itself.",
    },
    Row {
        reasons: &["Evicted"],
        words: &[],
        advice: "The node was short of what the message names: set requests that cover the use, or give the node more of it.",
    },
    Row {
        reasons: &["Preempting"],
        words: &[],
        advice: "A critical pod needs what it had: its controller creates it again, on a node that has enough.",
    },
    Row {
        reasons: &["Terminated"],
        words: &["node shutdown"],
        advice: "Its controller creates it again, on another node; a static pod starts again with the machine.",
    },
    Row {
        reasons: &["NodeShutdown"],
        words: &[],
        advice: "The node takes pods again after the machine has started, or if the shutdown is cancelled.",
    },
    Row {
        reasons: &["NodeAffinity", "NodeSelectorMismatching"],
        words: &[],
        advice: "The labels of this node do not fit the pod's node selector or affinity.",
    },
    Row {
        reasons: &["HostPort", "NodePorts"],
        words: &[],
        advice: "Another pod of this node has that host port: change one of them.",
    },
    Row {
        reasons: &["DeadlineExceeded"],
        words: &[],
        advice: "The pod ran for longer than its activeDeadlineSeconds.",
    },
];

/// What to do about this reason with this error.
#[must_use]
pub fn advice(reason: &str, error: &str) -> Vec<String> {
    let error = error.to_lowercase();
    let fits = |row: &&Row| {
        row.reasons.contains(&reason)
            && (row.words.is_empty() || row.words.iter().any(|word| error.contains(word)))
    };
    ROWS.iter().find(fits).map(|row| row.advice.to_owned()).into_iter().collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn first(reason: &str, error: &str) -> String {
        advice(reason, error).pop().unwrap_or_default()
    }

    #[test]
    fn advice_follows_from_the_words_of_the_error() {
        let not_found = r#"rpc error: code = NotFound desc = failed to pull and unpack image "docker.io/library/nope:1": not found"#;
        assert!(first("ErrImagePull", not_found).starts_with("Check the name and the tag"));
        let refused = "dial tcp 10.0.0.1:5000: connect: connection refused";
        assert!(first("ImagePullBackOff", refused).starts_with("Check from this node"));
        assert!(first("ErrImagePull", "something else").contains("crictl pull"));
        let refused = r#"volume "data": fsType "ext4 -F" is not the name of a filesystem type"#;
        assert!(first("FailedMount", refused).starts_with("Correct that field of the volume"));
        assert!(first("CrashLoopBackOff", "OOMKilled, exit code 137").contains("memory limit"));
        assert!(first("CrashLoopBackOff", "Error, exit code 1").contains("--previous"));
        assert_eq!(first("SomethingNew", "whatever"), "");
    }

    #[test]
    fn words_are_in_lower_case_and_a_row_for_every_error_is_the_last_of_its_reason() {
        for (index, row) in ROWS.iter().enumerate() {
            assert!(row.words.iter().all(|word| *word == word.to_lowercase()), "{}", row.advice);
            let hidden = ROWS[index + 1..]
                .iter()
                .filter(|later| later.reasons.iter().any(|reason| row.reasons.contains(reason)));
            assert!(!row.words.is_empty() || hidden.count() == 0, "{} hides a later row", row.advice);
        }
    }
}
