//! Tells the runtime, on each call, which trace it belongs to.

use std::sync::Arc;

use ports::TraceContext;
use ports::trace::TRACEPARENT;
use tonic::service::Interceptor;
use tonic::{Request, Status};

/// Nothing is told where there is no context, which is where nobody asked for traces.
#[derive(Clone, Debug, Default)]
pub(crate) struct HandOn(pub(crate) Option<Arc<dyn TraceContext>>);

impl Interceptor for HandOn {
    fn call(&mut self, mut request: Request<()>) -> Result<Request<()>, Status> {
        let parent = self.0.as_ref().and_then(|context| context.traceparent()?.parse().ok());
        if let Some(parent) = parent {
            request.metadata_mut().insert(TRACEPARENT, parent);
        }
        Ok(request)
    }
}
