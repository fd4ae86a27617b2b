//! Credentials for registries, from the files that docker and others write.
