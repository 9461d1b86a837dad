//! `wasi:http`: the request that came in, the response that goes out, and [requests to others](super::outgoing).
//!
//! A response begins when the guest sets the outparam; what it wrote to the body before waits until then, what it writes
//! afterwards goes on in pieces of some size. A body is complete when the guest has finished it, perhaps with trailers.

mod fields;
mod messages;
mod types;

pub(crate) use self::{
    fields::Headers,
    messages::{Bodies, OutgoingRequest, OutgoingResponse},
    types::{ErrorCode, Method, Scheme},
};

use self::{
    fields::{HeaderError, is_token},
    messages::{LONGEST_PART, is_path},
};
use super::{
    functions,
    host::Host,
    io::IoError,
    outgoing::Remote,
    table::{Event, Object, mistaken},
};
use wasmtime::{
    Result,
    component::{Linker, Resource, ResourceType},
};

/// Marks of resource types.
pub(crate) struct Fields;
pub(crate) struct IncomingRequest;
struct OutgoingRequestHandle;
struct RequestOptions;
pub(crate) struct ResponseOutparam;
struct IncomingResponse;
struct IncomingBody;
struct FutureTrailers;
struct OutgoingResponseHandle;
struct OutgoingBody;
struct FutureIncomingResponse;

pub(crate) fn link(linker: &mut Linker<Host>) -> Result<()> {
    let mut types = linker.instance("wasi:http/types@0.2.0")?;
    for (name, resource) in [
        ("fields", ResourceType::host::<Fields>()),
        ("incoming-request", ResourceType::host::<IncomingRequest>()),
        ("outgoing-request", ResourceType::host::<OutgoingRequestHandle>()),
        ("request-options", ResourceType::host::<RequestOptions>()),
        ("response-outparam", ResourceType::host::<ResponseOutparam>()),
        ("incoming-response", ResourceType::host::<IncomingResponse>()),
        ("incoming-body", ResourceType::host::<IncomingBody>()),
        ("future-trailers", ResourceType::host::<FutureTrailers>()),
        (
            "outgoing-response",
            ResourceType::host::<OutgoingResponseHandle>(),
        ),
        ("outgoing-body", ResourceType::host::<OutgoingBody>()),
        (
            "future-incoming-response",
            ResourceType::host::<FutureIncomingResponse>(),
        ),
    ] {
        types.resource(name, resource, super::forget)?;
    }
    functions!(types {
        "http-error-code" => |host, error: Resource<IoError>| match host.table.get(&error)? {
            Object::Error(error) => Ok((Some(ErrorCode::of(*error)),)),
            _ => Err(mistaken()),
        };

        "[constructor]fields" => |host| Ok((host.fields(Headers::default())?,));
        "[static]fields.from-list" => |host, entries: Vec<(String, Vec<u8>)>| {
            let mut headers = Headers::default();
            for (name, value) in entries {
                if let Err(error) = headers.append(name, value)? {
                    return Ok((Err(error),));
                }
            }
            Ok((Ok::<_, HeaderError>(host.fields(headers)?),))
        };
        "[method]fields.get" => |host, this: Resource<Fields>, name: String|
            Ok((host.headers(&this)?.values(&name),));
        "[method]fields.has" => |host, this: Resource<Fields>, name: String|
            Ok((!host.headers(&this)?.values(&name).is_empty(),));
        "[method]fields.set" => |host, this: Resource<Fields>, name: String, values: Vec<Vec<u8>>|
            Ok((host.change(&this, |headers| headers.set(name, values))?,));
        "[method]fields.delete" => |host, this: Resource<Fields>, name: String|
            Ok((host.change(&this, |headers| Ok(headers.delete(&name)))?,));
        "[method]fields.append" => |host, this: Resource<Fields>, name: String, value: Vec<u8>|
            Ok((host.change(&this, |headers| headers.append(name, value))?,));
        "[method]fields.entries" => |host, this: Resource<Fields>|
            Ok((host.headers(&this)?.entries.clone(),));
        "[method]fields.clone" => |host, this: Resource<Fields>| {
            let mut headers = host.headers(&this)?.clone();
            headers.immutable = false;
            Ok((host.fields(headers)?,))
        };

        "[method]incoming-request.method" => |host, _this: Resource<IncomingRequest>| Ok((host.method()?,));
        "[method]incoming-request.path-with-query" => |host, _this: Resource<IncomingRequest>|
            Ok((Some(host.command()?.head().target().to_owned()),));
        "[method]incoming-request.scheme" => |host, _this: Resource<IncomingRequest>| {
            let secure = host.command()?.head().origin.secure;
            Ok((Some(if secure { Scheme::Https } else { Scheme::Http }),))
        };
        "[method]incoming-request.authority" => |host, _this: Resource<IncomingRequest>| {
            let authority = host.command()?.head().header("host");
            Ok((authority.map(|name| String::from_utf8_lossy(name).into_owned()),))
        };
        "[method]incoming-request.headers" => |host, _this: Resource<IncomingRequest>| {
            let headers = Headers::of(host.command()?.head());
            Ok((host.fields(headers)?,))
        };
        "[method]incoming-request.consume" => |host, this: Resource<IncomingRequest>| Ok((host.consume(&this)?,));
        "[method]incoming-body.stream" => |host, this: Resource<IncomingBody>| Ok((host.body_stream(&this)?,));
        "[static]incoming-body.finish" => |host, this: Resource<IncomingBody>| {
            let Object::IncomingBody { of, .. } = host.table.take(&this)? else {
                return Err(mistaken());
            };
            let trailers: Resource<FutureTrailers> = host.table.push(Object::FutureTrailers { of, taken: false })?;
            Ok((trailers,))
        };
        "[method]future-trailers.subscribe" => |host, this: Resource<FutureTrailers>| match *host.table.get(&this)? {
            Object::FutureTrailers { of, .. } => Ok((host.pollable(Event::Trailers(of))?,)),
            _ => Err(mistaken()),
        };
        "[method]future-trailers.get" => |host, this: Resource<FutureTrailers>| Ok((host.trailers(&this)?,));

        "[constructor]outgoing-response" => |host, headers: Resource<Fields>| Ok((host.new_response(&headers)?,));
        "[method]outgoing-response.status-code" => |host, this: Resource<OutgoingResponseHandle>|
            Ok((host.response(&this)?.status,));
        "[method]outgoing-response.set-status-code" => |host, this: Resource<OutgoingResponseHandle>, status: u16| {
            let Object::OutgoingResponse(response) = host.table.get_mut(&this)? else {
                return Err(mistaken());
            };
            let good = (200..1000).contains(&status);
            if good {
                response.status = status;
            }
            Ok((if good { Ok(()) } else { Err(()) },))
        };
        "[method]outgoing-response.headers" => |host, this: Resource<OutgoingResponseHandle>| {
            let headers = host.response(&this)?.headers.clone();
            Ok((host.shown(headers)?,))
        };
        "[method]outgoing-response.body" => |host, this: Resource<OutgoingResponseHandle>|
            Ok((host.response_body(&this)?,));
        "[method]outgoing-body.write" => |host, this: Resource<OutgoingBody>| Ok((host.body_writer(&this)?,));
        "[static]outgoing-body.finish" => |host, this: Resource<OutgoingBody>, trailers: Option<Resource<Fields>>|
            Ok((host.finish(&this, trailers.as_ref())?,));
        "[static]response-outparam.set" =>
            |host, this: Resource<ResponseOutparam>, response: Result<Resource<OutgoingResponseHandle>, ErrorCode>| {
                host.table.take(&this)?;
                host.set(response)
            };

        "[constructor]outgoing-request" => |host, headers: Resource<Fields>| {
            let headers = host.take_headers(&headers)?;
            let request = OutgoingRequest { headers, ..OutgoingRequest::default() };
            let request: Resource<OutgoingRequestHandle> = host.table.push(Object::OutgoingRequest(request))?;
            Ok((request,))
        };
        "[method]outgoing-request.body" => |host, this: Resource<OutgoingRequestHandle>| Ok((host.request_body(&this)?,));
        "[method]outgoing-request.method" => |host, this: Resource<OutgoingRequestHandle>|
            Ok((host.request(&this)?.method.clone(),));
        "[method]outgoing-request.set-method" => |host, this: Resource<OutgoingRequestHandle>, method: Method| {
            let good = match &method {
                Method::Other(name) => is_token(name) && name.len() <= LONGEST_PART,
                _ => true,
            };
            Ok((host.part(&this, good, |request| request.method = method)?,))
        };
        "[method]outgoing-request.path-with-query" => |host, this: Resource<OutgoingRequestHandle>|
            Ok((host.request(&this)?.path.clone(),));
        "[method]outgoing-request.set-path-with-query" =>
            |host, this: Resource<OutgoingRequestHandle>, path: Option<String>| {
                let good = path.as_deref().is_none_or(is_path);
                Ok((host.part(&this, good, |request| request.path = path)?,))
            };
        "[method]outgoing-request.scheme" => |host, this: Resource<OutgoingRequestHandle>|
            Ok((host.request(&this)?.scheme.clone(),));
        "[method]outgoing-request.set-scheme" => |host, this: Resource<OutgoingRequestHandle>, scheme: Option<Scheme>| {
            let good = match &scheme {
                Some(Scheme::Other(name)) => is_path(name),
                _ => true,
            };
            Ok((host.part(&this, good, |request| request.scheme = scheme)?,))
        };
        "[method]outgoing-request.authority" => |host, this: Resource<OutgoingRequestHandle>|
            Ok((host.request(&this)?.authority.clone(),));
        "[method]outgoing-request.set-authority" =>
            |host, this: Resource<OutgoingRequestHandle>, authority: Option<String>| {
                let good = authority.as_deref().is_none_or(is_path);
                Ok((host.part(&this, good, |request| request.authority = authority)?,))
            };
        "[method]outgoing-request.headers" => |host, this: Resource<OutgoingRequestHandle>| {
            let headers = host.request(&this)?.headers.clone();
            Ok((host.shown(headers)?,))
        };

        "[constructor]request-options" => |host| {
            let options: Resource<RequestOptions> = host.table.push(Object::RequestOptions([None; 3]))?;
            Ok((options,))
        };
    });
    for (which, name) in ["connect-timeout", "first-byte-timeout", "between-bytes-timeout"]
        .into_iter()
        .enumerate()
    {
        functions!(types {
            &format!("[method]request-options.{name}") =>
                |host, this: Resource<RequestOptions>| Ok((*host.option(&this, which)?,));
            &format!("[method]request-options.set-{name}") =>
                |host, this: Resource<RequestOptions>, duration: Option<u64>| {
                    *host.option(&this, which)? = duration;
                    Ok((Ok::<(), ()>(()),))
                };
        });
    }
    functions!(types {
        "[method]incoming-response.status" => |host, this: Resource<IncomingResponse>| Ok((host.reply(&this)?.0,));
        "[method]incoming-response.headers" => |host, this: Resource<IncomingResponse>| {
            let headers = host.reply(&this)?.1.clone();
            Ok((host.shown(headers)?,))
        };
        "[method]incoming-response.consume" => |host, this: Resource<IncomingResponse>|
            Ok((host.consume_reply(&this)?,));
        "[method]future-incoming-response.subscribe" => |host, this: Resource<FutureIncomingResponse>|
            Ok((host.pollable(Event::Reply(this.rep()))?,));
        "[method]future-incoming-response.get" => |host, this: Resource<FutureIncomingResponse>|
            Ok((host.await_reply(&this)?,));
    });

    functions!(linker.instance("wasi:http/outgoing-handler@0.2.0")? {
        "handle" => |host, request: Resource<OutgoingRequestHandle>, options: Option<Resource<RequestOptions>>| {
            host.handle(Remote::Http, &request, options.as_ref())
        };
    });

    functions!(linker.instance("millpond:s3/objects@0.1.0")? {
        "handle" => |host, request: Resource<OutgoingRequestHandle>, options: Option<Resource<RequestOptions>>| {
            host.handle(Remote::Objects, &request, options.as_ref())
        };
    });
    Ok(())
}

impl Host {
    /// Sends a request, and gives what stands for its reply.
    fn handle(
        &mut self,
        to: Remote,
        request: &Resource<OutgoingRequestHandle>,
        options: Option<&Resource<RequestOptions>>,
    ) -> Result<(Result<Resource<FutureIncomingResponse>, ErrorCode>,)> {
        let Object::OutgoingRequest(request) = self.table.take(request)? else {
            return Err(mistaken());
        };
        let patience = match options {
            Some(options) => match self.table.take(options)? {
                Object::RequestOptions(options) => options,
                _ => return Err(mistaken()),
            },
            None => [None; 3],
        };
        Ok((match self.send(to, request, patience)? {
            Ok(sent) => Ok(self.table.push(Object::Sent(sent))?),
            Err(error) => Err(error),
        },))
    }
}
