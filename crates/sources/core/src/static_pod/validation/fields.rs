//! Fields that occur in several parts of a pod.

use std::net::IpAddr;

use model::Amount;
use model::k8s::Quantity;

use super::Findings;

pub(super) fn check_ip(path: &str, ip: &str, found: &mut Findings<'_>) {
    let strictly = ip.parse::<IpAddr>().ok();
    let problem = match strictly.or_else(|| without_leading_zeros(ip).parse().ok()) {
        None => "must be a valid IP address, (e.g. 10.9.8.7 or 2001:db8::ffff)",
        Some(_) if !found.features.strict_addresses => return,
        // Some programs parse such a number as octal.
        Some(_) if strictly.is_none() => "must not have leading 0s",
        Some(IpAddr::V6(v6)) if v6.to_ipv4_mapped().is_some() => "must not be an IPv4-mapped IPv6 address",
        Some(_) => return,
    };
    found.invalid(path, ip, problem);
}

/// With the numbers between dots without leading zeros.
fn without_leading_zeros(ip: &str) -> String {
    let (head, dotted) = ip.rsplit_once(':').map_or(("", ip), |(head, dotted)| (head, dotted));
    let colon = if head.is_empty() && !ip.starts_with(':') { "" } else { ":" };
    let plain = |number: &str| match number.trim_start_matches('0') {
        "" if !number.is_empty() => "0".to_owned(),
        plain => plain.to_owned(),
    };
    let numbers: Vec<String> = dotted.split('.').map(plain).collect();
    format!("{head}{colon}{}", numbers.join("."))
}

pub(super) fn check_resource_field(
    path: &str,
    resource: &str,
    divisor: Option<&Quantity>,
    found: &mut Findings<'_>,
) {
    let name = resource.strip_prefix("limits.").or_else(|| resource.strip_prefix("requests."));
    let is_known = name.is_some_and(|name| {
        matches!(name, "cpu" | "memory" | "ephemeral-storage") || name.starts_with("hugepages-")
    });
    let known = [
        "limits.cpu",
        "limits.ephemeral-storage",
        "limits.memory",
        "requests.cpu",
        "requests.ephemeral-storage",
        "requests.memory",
    ];
    if resource.is_empty() {
        found.required(format!("{path}.resource"), "");
    } else if !is_known {
        found.one_of(format!("{path}.resource"), Some(resource), &known);
    }
    if let Some(divisor) = divisor.filter(|divisor| Amount::of(divisor).is_err()) {
        found.invalid(format!("{path}.divisor"), divisor.0.as_str(), "must be a valid resource quantity");
    }
}
