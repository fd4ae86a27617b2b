//! The types that all kinds share.

use super::Fields;
use super::Type::{Keyed, Leaf, Map, Set};
use super::keys::BY_UID;

pub(super) static OBJECT_META: Fields = Fields {
    leaves: "creationTimestamp deletionGracePeriodSeconds deletionTimestamp generateName generation \
        managedFields name namespace resourceVersion selfLink uid",
    nested: &[
        ("annotations", Map(&Leaf)),
        ("finalizers", Set),
        ("labels", Map(&Leaf)),
        ("ownerReferences", Keyed(BY_UID, &Leaf)),
    ],
};

pub(super) static CONDITION: Fields =
    Fields::leaves("lastTransitionTime message observedGeneration reason status type");
