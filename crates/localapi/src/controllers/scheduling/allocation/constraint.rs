//! Constraints between the devices of a claim.

use serde_json::Value;

use super::device::{Device, qualified};
use super::request::shown;
use crate::cel::Attribute;
use crate::object::{items, text};

#[derive(Clone, Debug)]
pub(super) struct Constraint {
    /// The requests that it is about; all if there are none.
    requests: Vec<String>,
    attribute: String,
    kind: Kind,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    /// All devices have the same value.
    Match,
    /// Each has another one.
    Distinct,
}

pub(super) fn of_claim(claim: &Value) -> Result<Vec<Constraint>, String> {
    let constraints = items(claim, "/spec/devices/constraints").iter().enumerate();
    constraints
        .map(|(at, constraint)| {
            let requests = items(constraint, "/requests").iter().filter_map(Value::as_str);
            let requests = requests.map(str::to_owned).collect();
            let (kind, attribute) =
                match (text(constraint, "/matchAttribute"), text(constraint, "/distinctAttribute")) {
                    ("", "") => {
                        let claim = shown(claim);
                        return Err(format!(
                            "claim {claim}, constraint #{at}: empty constraint (unsupported constraint type?)"
                        ));
                    }
                    ("", distinct) => (Kind::Distinct, distinct),
                    (same, _) => (Kind::Match, same),
                };
            Ok(Constraint { requests, attribute: attribute.to_owned(), kind })
        })
        .collect()
}

impl Constraint {
    /// Whether it is about this request or subrequest.
    fn concerns(&self, request: &str) -> bool {
        let parent = request.split_once('/').map_or(request, |(parent, _)| parent);
        self.requests.is_empty() || self.requests.iter().any(|name| name == request || name == parent)
    }

    fn value<'a>(&self, device: &'a Device) -> Option<&'a Attribute> {
        device.attributes.get(&qualified(&self.attribute, &device.id.driver))
    }

    /// Whether the device may be added to those that the claim has already, each with its request.
    pub(super) fn allows(&self, request: &str, device: &Device, chosen: &[(&str, &Device)]) -> bool {
        if !self.concerns(request) {
            return true;
        }
        let Some(value) = self.value(device) else { return false };
        let mut others =
            chosen.iter().filter(|(request, _)| self.concerns(request)).map(|(_, device)| self.value(device));
        match self.kind {
            Kind::Match => others.all(|other| other == Some(value)),
            Kind::Distinct => others.all(|other| other != Some(value)),
        }
    }
}
