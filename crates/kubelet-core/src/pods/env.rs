//! A container's environment (docs/behaviour/pod-environment.md): declared variables, their sources, and `$(VAR)` expansion.
//! Never reads the environment of the kubelet itself.

mod expansion;
mod files;

use api_core::env_objects::{EnvFile, EnvObjects};
use std::collections::BTreeMap;

use model::Amount;
use model::containers::ContainerRef;
use model::env_value::EnvValue;
use model::k8s::{EnvVar, EnvVarSource, FileKeySelector, Pod};

pub use expansion::{
    CommandExpander, ExpansionError, MAX_TOTAL, SubPathError, expand_all, expand_sub_path, values_by_name,
};
pub use files::{EnvFileError, LONGEST_ENV_FILE, MAX_ENV_FILES_TOTAL, required_env_files};

pub(crate) use self::files::read_env_file;

use base_core::downward::{DownwardError, DownwardFacts, field_value, resource_value};

use self::expansion::{MAX_STRING, TooLong, cost, expand};

/// Why the environment cannot be computed; the message of waiting reason `CreateContainerConfigError`.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum EnvError {
    #[error("configmap {name:?} not found")]
    NoConfigMap { name: String },
    #[error("secret {name:?} not found")]
    NoSecret { name: String },
    #[error("couldn't find key {key} in ConfigMap {namespace}/{name}")]
    NoConfigMapKey { key: String, namespace: String, name: String },
    #[error("couldn't find key {key} in Secret {namespace}/{name}")]
    NoSecretKey { key: String, namespace: String, name: String },
    #[error("environment variable {variable:?}: fileKeyRef needs the feature gate EnvFiles, which is off")]
    FilesOff { variable: String },
    #[error("env file {:?} not found in volume {:?}", .0.path, .0.volume)]
    NoFile(EnvFile),
    #[error("environment variable key {key:?} not found in file {:?} of volume {:?}", file.path, file.volume)]
    NoFileKey { key: String, file: EnvFile },
    #[error("couldn't parse env file {:?} of volume {:?}: {source}", file.path, file.volume)]
    BadFile { file: EnvFile, source: EnvFileError },
    #[error(transparent)]
    Expansion(#[from] ExpansionError),
    #[error(transparent)]
    Downward(#[from] DownwardError),
}

/// Variables in the order they are first named; of several values for one name the last counts. Service variables that
/// no variable declares come last.
///
/// # Errors
/// A source that is not optional does not exist, a field cannot be read, or the environment is larger than the kernel
/// accepts.
pub fn compute_env(
    pod: &Pod,
    container: &ContainerRef<'_>,
    facts: &DownwardFacts<'_>,
    objects: &EnvObjects,
) -> Result<Vec<(String, EnvValue)>, EnvError> {
    let mut env = Environment::default();
    let mut sources = Sources { pod, facts, objects, files: BTreeMap::new() };
    for source in container.env_from() {
        let prefix = source.prefix.as_deref().unwrap_or_default();
        if let Some(from) = &source.config_map_ref {
            match objects.config_maps.get(&from.name) {
                Some(data) => env.set_all(prefix, data)?,
                None if from.optional == Some(true) => {}
                None => return Err(EnvError::NoConfigMap { name: from.name.clone() }),
            }
        }
        if let Some(from) = &source.secret_ref {
            match objects.secrets.get(&from.name) {
                Some(data) => env.set_all(prefix, data)?,
                None if from.optional == Some(true) => {}
                None => return Err(EnvError::NoSecret { name: from.name.clone() }),
            }
        }
    }
    for variable in container.env() {
        let written = variable.value.as_deref().unwrap_or_default();
        let value = match &variable.value_from {
            Some(source) if written.is_empty() => sources.value(variable, source)?,
            Some(_) | None => {
                let service = |name: &str| objects.services.get(name).map(String::as_bytes);
                let value = expand(written, MAX_STRING, |name| {
                    env.get(name).map(EnvValue::as_bytes).or_else(|| service(name))
                });
                let too_long = |TooLong| ExpansionError::Variable { name: variable.name.clone() };
                Some(value.map_err(too_long)?.into())
            }
        };
        if let Some(value) = value {
            env.set(&variable.name, value)?;
        }
    }
    for (name, value) in &objects.services {
        if env.get(name).is_none() {
            env.set(name, value.as_str())?;
        }
    }
    Ok(env.variables)
}

/// Sources of values that are not written in the container.
struct Sources<'a> {
    pod: &'a Pod,
    facts: &'a DownwardFacts<'a>,
    objects: &'a EnvObjects,
    /// The contents of files: each is read once, whatever the number of variables from it.
    files: BTreeMap<EnvFile, Result<BTreeMap<&'a str, &'a str>, EnvFileError>>,
}

impl<'a> Sources<'a> {
    /// The value of a variable with a source; `None` if an optional source does not exist.
    fn value(&mut self, variable: &EnvVar, source: &EnvVarSource) -> Result<Option<EnvValue>, EnvError> {
        let Self { pod, facts, objects, .. } = *self;
        let namespace = || pod.metadata.namespace.clone().unwrap_or_default();
        if let Some(field) = &source.field_ref {
            return Ok(Some(field_value(pod, &field.field_path, facts)?.into()));
        }
        if let Some(field) = &source.resource_field_ref {
            let divisor = field.divisor.as_ref().and_then(|q| Amount::of(q).ok()).unwrap_or(Amount::ZERO);
            let name = field.container_name.as_deref().filter(|name| !name.is_empty());
            // A field reference without a container name refers to the container that declares it.
            let name = name.unwrap_or(facts.container);
            return Ok(Some(resource_value(pod, name, &field.resource, divisor, facts)?.into()));
        }
        if let Some(key) = &source.config_map_key_ref {
            let found = objects.config_maps.get(&key.name);
            let optional = key.optional == Some(true);
            return match (found, found.and_then(|data| data.get(&key.key))) {
                (_, Some(value)) => Ok(Some(value.as_str().into())),
                (_, None) if optional => Ok(None),
                (None, None) => Err(EnvError::NoConfigMap { name: key.name.clone() }),
                (Some(_), None) => Err(EnvError::NoConfigMapKey {
                    key: key.key.clone(),
                    namespace: namespace(),
                    name: key.name.clone(),
                }),
            };
        }
        if let Some(key) = &source.secret_key_ref {
            let found = objects.secrets.get(&key.name);
            let optional = key.optional == Some(true);
            return match (found, found.and_then(|data| data.get(&key.key))) {
                (_, Some(value)) => Ok(Some(value.clone())),
                (_, None) if optional => Ok(None),
                (None, None) => Err(EnvError::NoSecret { name: key.name.clone() }),
                (Some(_), None) => Err(EnvError::NoSecretKey {
                    key: key.key.clone(),
                    namespace: namespace(),
                    name: key.name.clone(),
                }),
            };
        }
        match &source.file_key_ref {
            Some(selector) => match &objects.files {
                Some(files) => self.file_value(selector, files),
                None => Err(EnvError::FilesOff { variable: variable.name.clone() }),
            },
            None => Ok(Some(EnvValue::default())),
        }
    }

    fn file_value(
        &mut self,
        selector: &FileKeySelector,
        files: &'a BTreeMap<EnvFile, String>,
    ) -> Result<Option<EnvValue>, EnvError> {
        let file = EnvFile::of(selector);
        let is_optional = selector.optional == Some(true);
        let Some(text) = files.get(&file) else {
            return if is_optional { Ok(None) } else { Err(EnvError::NoFile(file)) };
        };
        match self.files.entry(file.clone()).or_insert_with(|| read_env_file(text)) {
            Ok(variables) => match variables.get(selector.key.as_str()) {
                Some(value) => Ok(Some((*value).into())),
                None if is_optional => Ok(None),
                None => Err(EnvError::NoFileKey { key: selector.key.clone(), file }),
            },
            Err(source) => Err(EnvError::BadFile { file, source: source.clone() }),
        }
    }
}

#[derive(Debug, Default)]
struct Environment {
    variables: Vec<(String, EnvValue)>,
    positions: BTreeMap<String, usize>,
    /// Memory that the kernel will need for the variables.
    total: usize,
    /// Bytes of all values that were ever set, including replaced ones.
    written: usize,
}

/// Bounds the copies for a container that sets one variable repeatedly.
const MAX_WRITTEN: usize = 4 * MAX_TOTAL;

impl Environment {
    fn get(&self, name: &str) -> Option<&EnvValue> {
        self.positions.get(name).and_then(|at| self.variables.get(*at)).map(|(_, value)| value)
    }

    fn set(&mut self, name: &str, value: impl AsRef<[u8]> + Into<EnvValue>) -> Result<(), ExpansionError> {
        let length = name.len() + 1 + value.as_ref().len();
        if length >= MAX_STRING {
            return Err(ExpansionError::Variable { name: name.to_owned() });
        }
        let known = self.positions.get(name).and_then(|at| self.variables.get_mut(*at));
        let replaced =
            known.as_ref().map_or(0, |(name, value)| cost(name.len() + 1 + value.as_bytes().len()));
        self.total = self.total - replaced + cost(length);
        self.written += length;
        if self.total > MAX_TOTAL || self.written > MAX_WRITTEN {
            return Err(ExpansionError::Total);
        }
        match known {
            Some(variable) => variable.1 = value.into(),
            None => {
                self.positions.insert(name.to_owned(), self.variables.len());
                self.variables.push((name.to_owned(), value.into()));
            }
        }
        Ok(())
    }

    fn set_all<V: AsRef<[u8]>>(
        &mut self,
        prefix: &str,
        data: &BTreeMap<String, V>,
    ) -> Result<(), ExpansionError> {
        data.iter().try_for_each(|(key, value)| self.set(&format!("{prefix}{key}"), value.as_ref()))
    }
}

#[cfg(test)]
mod tests;
