//! A CRI server that passes each request as bytes to one function. A unary call is a stream of one message.

use std::io;
use std::path::Path;
use std::sync::Arc;

use prost::bytes::{Buf, BufMut};
use tokio::net::UnixListener;
use tokio::task::JoinHandle;
use tokio_stream::wrappers::UnixListenerStream;
use tonic::body::Body;
use tonic::codec::{Codec, DecodeBuf, Decoder, EncodeBuf, Encoder};
use tonic::codegen::{BoxFuture, BoxStream, http};
use tonic::server::{Grpc, ServerStreamingService};
use tonic::{Request, Response, Status};

use crate::runtime_calls::{CallHandler, serve_calls};

pub(super) type Answer = Result<Response<BoxStream<Vec<u8>>>, Status>;
/// The path of the method, and the request.
pub(super) type Handler =
    Arc<dyn Fn(String, Request<Vec<u8>>) -> BoxFuture<Response<BoxStream<Vec<u8>>>, Status> + Send + Sync>;

/// Messages as their bytes.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Raw;

impl Codec for Raw {
    type Encode = Vec<u8>;
    type Decode = Vec<u8>;
    type Encoder = Self;
    type Decoder = Self;

    fn encoder(&mut self) -> Self {
        Self
    }

    fn decoder(&mut self) -> Self {
        Self
    }
}

impl Encoder for Raw {
    type Item = Vec<u8>;
    type Error = Status;

    fn encode(&mut self, item: Vec<u8>, buffer: &mut EncodeBuf<'_>) -> Result<(), Status> {
        buffer.put_slice(&item);
        Ok(())
    }
}

impl Decoder for Raw {
    type Item = Vec<u8>;
    type Error = Status;

    fn decode(&mut self, buffer: &mut DecodeBuf<'_>) -> Result<Option<Vec<u8>>, Status> {
        let mut message = vec![0; buffer.remaining()];
        buffer.copy_to_slice(&mut message);
        Ok(Some(message))
    }
}

/// Serves both services at `socket`, in a task of the current tokio runtime.
pub(super) fn serve(socket: &Path, handler: &Handler) -> io::Result<JoinHandle<()>> {
    let incoming = UnixListenerStream::new(UnixListener::bind(socket)?);
    let serving = serve_calls(&Arc::new(Calls(Arc::clone(handler)))).serve_with_incoming(incoming);
    Ok(tokio::spawn(async move {
        // It ends by abort; an error before that shows as refused connections.
        let _ = serving.await;
    }))
}

struct Calls(Handler);

impl CallHandler for Calls {
    async fn answer(self: Arc<Self>, request: http::Request<Body>) -> http::Response<Body> {
        let call = Call { handler: Arc::clone(&self.0), path: request.uri().path().to_owned() };
        Grpc::new(Raw).server_streaming(call, request).await
    }
}

struct Call {
    handler: Handler,
    path: String,
}

impl ServerStreamingService<Vec<u8>> for Call {
    type Response = Vec<u8>;
    type ResponseStream = BoxStream<Vec<u8>>;
    type Future = BoxFuture<Response<BoxStream<Vec<u8>>>, Status>;

    fn call(&mut self, request: Request<Vec<u8>>) -> Self::Future {
        (self.handler)(self.path.clone(), request)
    }
}
