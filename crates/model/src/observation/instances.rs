//! The observed containers of a pod, which are searched by name and by id.
//!
//! Owns: the order by name and id, which is made when the first search of a pod with many containers needs it. Without it each decision
//! about such a pod would compare every container with every other.

use std::fmt;
use std::ops::{Deref, DerefMut};
use std::sync::OnceLock;

use super::ContainerObservation;
use crate::ids::ContainerId;

/// Up to here a search from the beginning is as fast, and nothing is kept for it.
const FEW: usize = 16;

/// The containers of a pod in the runtime, newest first.
#[derive(Default)]
pub struct Instances {
    all: Vec<ContainerObservation>,
    order: OnceLock<Box<Order>>,
}

/// Positions in the list, sorted.
struct Order {
    /// Those of one name newest first.
    by_name: Vec<usize>,
    by_id: Vec<usize>,
}

impl Instances {
    #[must_use]
    pub const fn new(all: Vec<ContainerObservation>) -> Self {
        Self { all, order: OnceLock::new() }
    }

    /// Those of that name, newest first.
    pub(crate) fn of_name<'a>(&'a self, name: &str) -> impl Iterator<Item = &'a ContainerObservation> {
        let few = if self.all.len() > FEW { &[] } else { self.all.as_slice() };
        let positions = if self.all.len() > FEW { self.order().by_name.as_slice() } else { &[] };
        let first = positions.partition_point(|at| &*self.all[*at].name < name);
        let sorted = positions[first..].iter().map(|at| &self.all[*at]).take_while(move |c| &*c.name == name);
        few.iter().filter(move |c| &*c.name == name).chain(sorted)
    }

    pub(crate) fn of_id(&self, id: &ContainerId) -> Option<&ContainerObservation> {
        if self.all.len() <= FEW {
            return self.all.iter().find(|c| c.id == *id);
        }
        let positions = &self.order().by_id;
        let first = positions.partition_point(|at| self.all[*at].id < *id);
        positions.get(first).map(|at| &self.all[*at]).filter(|c| c.id == *id)
    }

    fn order(&self) -> &Order {
        self.order.get_or_init(|| {
            let (mut by_name, mut by_id) =
                (Vec::from_iter(0..self.all.len()), Vec::from_iter(0..self.all.len()));
            by_name.sort_by(|a, b| self.all[*a].name.cmp(&self.all[*b].name));
            by_id.sort_by(|a, b| self.all[*a].id.cmp(&self.all[*b].id));
            Box::new(Order { by_name, by_id })
        })
    }
}

impl From<Vec<ContainerObservation>> for Instances {
    fn from(all: Vec<ContainerObservation>) -> Self {
        Self::new(all)
    }
}

impl Deref for Instances {
    type Target = Vec<ContainerObservation>;

    fn deref(&self) -> &Self::Target {
        &self.all
    }
}

impl DerefMut for Instances {
    /// What changes has another order.
    fn deref_mut(&mut self) -> &mut Self::Target {
        self.order = OnceLock::new();
        &mut self.all
    }
}

impl<'a> IntoIterator for &'a Instances {
    type Item = &'a ContainerObservation;
    type IntoIter = std::slice::Iter<'a, ContainerObservation>;

    fn into_iter(self) -> Self::IntoIter {
        self.all.iter()
    }
}

impl<'a> IntoIterator for &'a mut Instances {
    type Item = &'a mut ContainerObservation;
    type IntoIter = std::slice::IterMut<'a, ContainerObservation>;

    fn into_iter(self) -> Self::IntoIter {
        self.iter_mut()
    }
}

impl Clone for Instances {
    fn clone(&self) -> Self {
        Self::new(self.all.clone())
    }
}

impl PartialEq for Instances {
    fn eq(&self, other: &Self) -> bool {
        self.all == other.all
    }
}

impl Eq for Instances {}

impl fmt::Debug for Instances {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.all.fmt(f)
    }
}

#[cfg(test)]
mod tests {
    use jiff::Timestamp;

    use super::*;
    use crate::observation::{ContainerRecord, ContainerState};

    fn container(number: usize) -> ContainerObservation {
        ContainerObservation {
            id: ContainerId::new(format!("id{}", number * 7 % 100)),
            sandbox_id: "box".into(),
            name: format!("c{}", number % 13).into(),
            state: ContainerState::Running,
            created_at: Timestamp::UNIX_EPOCH,
            started_at: None,
            finished_at: None,
            exit_code: 0,
            reason: String::new(),
            message: String::new(),
            image: String::new(),
            image_id: String::new(),
            log_path: String::new(),
            message_file: String::new(),
            record: ContainerRecord::default(),
            user: None,
            resources: None,
            stop_signal: None,
            recursive_read_only_mounts: Vec::new(),
            image_mounts: Vec::new(),
        }
    }

    fn check(instances: &Instances) {
        for number in 0..20 {
            let name = format!("c{number}");
            let searched = instances.iter().filter(|c| *c.name == *name);
            assert!(instances.of_name(&name).eq(searched), "{name} of {}", instances.len());
        }
        for container in instances {
            assert_eq!(instances.of_id(&container.id), Some(container));
        }
        assert_eq!(instances.of_id(&"none".into()), None);
    }

    #[test]
    fn instances_are_found_by_name_and_id_as_a_search_finds_them() {
        for count in [0, 1, FEW, FEW + 1, 100] {
            let mut instances = Instances::new((0..count).map(container).collect());
            check(&instances);
            instances.reverse();
            check(&instances);
            check(&instances.clone());
            instances.truncate(count / 2);
            check(&instances);
        }
    }
}
