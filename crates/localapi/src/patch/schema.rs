//! The patch strategies of the types: which lists are merged, and by which key. All other lists are replaced.

use crate::resources;
use crate::schema::{self, Schema, Type};

/// The type of a value in an object.
#[derive(Clone, Copy, Debug)]
pub(super) enum Shape {
    /// A value without merged lists.
    Plain,
    Struct(&'static Type),
}

/// How a list is patched.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ListMerge {
    Replace,
    /// Elements are maps with this merge key.
    ByKey(&'static str),
    /// Elements are scalars.
    Set,
}

impl Shape {
    /// `None` if the type is not built in: such objects have no patch strategy.
    pub(super) fn of_resource(resource: &str) -> Option<Self> {
        let plural = resource.split('/').next().unwrap_or_default();
        resources::stored(plural).and_then(Schema::of).map(Self::Struct)
    }

    fn field(self, name: &str) -> Option<&'static schema::Field> {
        match self {
            Self::Plain => None,
            Self::Struct(of) => of.field(name),
        }
    }

    fn of(shape: &schema::Shape) -> Self {
        let schema::Shape::Struct(section, name) = shape else { return Self::Plain };
        Schema::find(section, name).map_or(Self::Plain, Self::Struct)
    }

    /// The type of a map in this field.
    pub(super) fn map(self, field: &str) -> Self {
        self.field(field).map_or(Self::Plain, |field| Self::of(&field.shape))
    }

    /// How the list in this field is patched, and the type of its elements.
    pub(super) fn list(self, field: &str) -> (ListMerge, Self) {
        let Some(field) = self.field(field) else { return (ListMerge::Replace, Self::Plain) };
        let merge = match field.patch.map(|patch| patch.split_once(':').unwrap_or((patch, ""))) {
            Some((strategies, key)) if strategies.split(',').any(|strategy| strategy == "merge") => match key
            {
                "" => ListMerge::Set,
                key => ListMerge::ByKey(key),
            },
            Some(_) | None => ListMerge::Replace,
        };
        let schema::Shape::List(item) = &field.shape else { return (merge, Self::Plain) };
        (merge, Self::of(item))
    }
}
