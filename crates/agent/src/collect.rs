//! x
use std::sync::Arc; use crate::engine::Engine;
pub struct Collector;
impl Collector { pub fn new(_: Arc<Engine>) -> Self { Self } pub async fn run(self) {} }
