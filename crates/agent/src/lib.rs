//! The tasks: sync loop, pod workers, PLEG, prober, images, volumes, logs and collection.
#![forbid(unsafe_code)]
