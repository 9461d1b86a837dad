//! `wasi:cli`: the environment, the three streams, the way out.

use super::{
    functions,
    host::Host,
    io::{InputStream, OutputStream},
    table::{Object, Source, Target},
};
use wasi::Stop;
use wasmtime::{
    Error, Result,
    component::{Linker, Resource},
};

impl Host {
    fn output(&mut self, target: Target) -> Result<(Resource<OutputStream>,)> {
        Ok((self.table.push(Object::Output(target))?,))
    }
}

fn exit(code: i32) -> Result<()> {
    Err(Error::new(Stop::Exit(code)))
}

pub(crate) fn link(linker: &mut Linker<Host>) -> Result<()> {
    functions!(linker.instance("wasi:cli/environment@0.2.0")? {
        "get-environment" => |host| Ok((host.command()?.variables(),));
        "get-arguments" => |host| Ok((host.command()?.words(),));
        "initial-cwd" => |_host| Ok((None::<String>,));
    });
    functions!(linker.instance("wasi:cli/exit@0.2.0")? {
        "exit" => |_host, status: Result<(), ()>| exit(i32::from(status.is_err()));
        "exit-with-code" => |_host, code: u8| exit(i32::from(code));
    });
    functions!(linker.instance("wasi:cli/stdin@0.2.0")? {
        "get-stdin" => |host| {
            let source = if host.streams { Source::Body } else { Source::Nothing };
            let stream: Resource<InputStream> = host.table.push(Object::Input(source))?;
            Ok((stream,))
        };
    });
    functions!(linker.instance("wasi:cli/stdout@0.2.0")? {
        "get-stdout" => |host| host.output(if host.streams { Target::Output } else { Target::Log });
    });
    functions!(linker.instance("wasi:cli/stderr@0.2.0")? {
        "get-stderr" => |host| host.output(Target::Log);
    });
    Ok(())
}
