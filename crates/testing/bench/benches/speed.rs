//! Runs the benchmark. The program is a bench target, because those are built with the same features of dependencies as tests.

fn main() -> std::process::ExitCode {
    bench::main()
}
