use proptest::prelude::*;

use super::*;

fn shown(filter: LogFilter, log: &str) -> String {
    let mut reader = LogReader::new(filter);
    let mut shown = reader.feed(log.as_bytes());
    shown.extend(reader.finish());
    String::from_utf8(shown).unwrap()
}

const CRI: &str = "\
2026-01-01T00:00:01.5Z stdout F one
2026-01-01T00:00:02Z stderr F two
2026-01-01T00:00:03.123456789Z stdout P thr
2026-01-01T00:00:03.2Z stdout P e
2026-01-01T00:00:03.3+02:00 stdout F e
2026-01-01T00:00:04Z stdout F 
2026-01-01T00:00:05Z stdout F:x last
";

fn at(time: &str) -> Option<Timestamp> {
    Some(time.parse().unwrap())
}

#[test]
fn cri_log_lines_are_shown_without_time_stream_and_tags() {
    assert_eq!(shown(LogFilter::default(), CRI), "one\ntwo\nthree\n\nlast\n");
}

#[test]
fn json_file_log_lines_are_shown_without_time_and_stream() {
    let log = "{\"log\":\"one\\n\",\"stream\":\"stdout\",\"time\":\"2026-01-01T00:00:01.5Z\"}\n\
               {\"log\":\"tw\",\"stream\":\"stderr\",\"time\":\"2026-01-01T00:00:02Z\"}\n\
               {\"log\":\"o\\n\",\"stream\":\"stderr\",\"time\":\"2026-01-01T00:00:02Z\",\"attrs\":{}}\n";
    assert_eq!(shown(LogFilter::default(), log), "one\ntwo\n");
    let stdout = LogFilter { stream: Some("stdout"), timestamps: true, ..LogFilter::default() };
    assert_eq!(shown(stdout, log), "2026-01-01T00:00:01.500000000Z one\n");
}

#[test]
fn timestamps_precede_whole_lines_only_and_have_nine_digits() {
    let filter = LogFilter { timestamps: true, ..LogFilter::default() };
    let expected = "\
2026-01-01T00:00:01.500000000Z one
2026-01-01T00:00:02.000000000Z two
2026-01-01T00:00:03.123456789Z three
2026-01-01T00:00:04.000000000Z \n\
2026-01-01T00:00:05.000000000Z last
";
    assert_eq!(shown(filter, CRI), expected);
}

#[test]
fn log_timestamps_in_utc_end_with_z_whatever_the_runtime_wrote() {
    let filter = LogFilter { timestamps: true, ..LogFilter::default() };
    let crio = "2026-11-25T11:09:02.123456789+00:00 stdout F one\n2026-11-25T13:09:02.5+02:00 stdout F two\n";
    let expected = "2026-11-25T11:09:02.123456789Z one\n2026-11-25T13:09:02.500000000+02:00 two\n";
    assert_eq!(shown(filter, crio), expected);
}

#[test]
fn log_lines_before_since_are_skipped() {
    let since = |time| LogFilter { since: at(time), ..LogFilter::default() };
    assert_eq!(shown(since("2026-01-01T00:00:04Z"), CRI), "\nlast\n");
    assert_eq!(shown(since("2027-01-01T00:00:00Z"), CRI), "");
}

#[test]
fn log_lines_can_be_filtered_by_stream() {
    let filter = LogFilter { stream: Some("stderr"), ..LogFilter::default() };
    assert_eq!(shown(filter, CRI), "two\n");
}

#[test]
fn limit_bytes_cuts_within_a_line() {
    let mut reader = LogReader::new(LogFilter { limit_bytes: Some(5), ..LogFilter::default() });
    assert_eq!(reader.feed(CRI.as_bytes()), b"one\nt");
    assert!(reader.is_full());
    assert_eq!(reader.feed(CRI.as_bytes()), b"");
}

#[test]
fn lines_in_no_log_format_are_skipped() {
    let noise =
        "nonsense\n{\"log\": 7}\n{\n2026-01-01T00:00:01Z stdin F no\n2026-01-01T00:00:01Z stdout X no\n";
    assert_eq!(
        shown(LogFilter::default(), &format!("{noise}{CRI}{noise}")),
        shown(LogFilter::default(), CRI)
    );
}

#[test]
fn incomplete_last_line_is_shown_at_the_end_of_the_log() {
    let mut reader = LogReader::new(LogFilter::default());
    assert_eq!(reader.feed(b"2026-01-01T00:00:01Z stdout F ha"), b"");
    assert_eq!(reader.feed(b"lf"), b"");
    assert_eq!(reader.finish(), b"half");
}

#[test]
fn log_line_of_any_length_is_shown_in_bounded_memory() {
    let text = "x".repeat(3 * MAX_LINE_BYTES);
    let log = format!("2026-01-01T00:00:01Z stdout F {text}\n2026-01-01T00:00:01Z stdout F next\n");
    let mut reader = LogReader::new(LogFilter::default());
    let mut shown = Vec::new();
    for piece in log.as_bytes().chunks(4096) {
        shown.extend(reader.feed(piece));
        assert!(reader.pending.len() <= MAX_LINE_BYTES + 4096);
    }
    assert_eq!(shown, format!("{text}\nnext\n").into_bytes());
    let unwanted = LogFilter { stream: Some("stderr"), ..LogFilter::default() };
    assert_eq!(shown_in_pieces(unwanted, log.as_bytes(), 4096), b"");
}

fn shown_in_pieces(filter: LogFilter, log: &[u8], size: usize) -> Vec<u8> {
    let mut reader = LogReader::new(filter);
    let mut shown = Vec::new();
    for piece in log.chunks(size) {
        shown.extend(reader.feed(piece));
    }
    shown.extend(reader.finish());
    shown
}

fn noise() -> impl Strategy<Value = Vec<u8>> {
    let line = prop_oneof![
        prop::collection::vec(any::<u8>(), 0..60),
        "2026-01-01T00:00:0[0-9](\\.[0-9]{0,12})?(Z|[+]01:00)? (stdout|stderr|) ?[PFX:]{0,3} ?[a-z ]{0,20}"
            .prop_map(String::into_bytes),
        "[{]\"log\":\"[a-z]{0,9}(\\\\n)?\",\"stream\":\"std(out|err)\",\"time\":\"[0-9TZ:.-]{0,30}\"[}]"
            .prop_map(String::into_bytes),
    ];
    prop::collection::vec(line, 0..20).prop_map(|lines| lines.join(&b'\n'))
}

proptest! {
    #[test]
    fn any_log_is_read_without_panic_and_independent_of_its_pieces(
        log in noise(),
        size in 1..50_usize,
        timestamps: bool,
        limit in prop::option::of(0..200_u64),
    ) {
        let filter = LogFilter { timestamps, limit_bytes: limit, since: at("2026-01-01T00:00:03Z"), stream: None };
        let whole = shown_in_pieces(filter.clone(), &log, usize::MAX);
        prop_assert!(limit.is_none_or(|limit| whole.len() as u64 <= limit));
        prop_assert_eq!(shown_in_pieces(filter, &log, size), whole);
    }

    #[test]
    fn normalized_log_timestamps_keep_their_instant(time in "2026-0[1-9]-1[0-9]T1[0-9]:0[0-9]:0[0-9](\\.[0-9]{1,9})?(Z|[+]0[02]:00)") {
        let fixed = fixed_nanos(&time);
        prop_assert_eq!(fixed.parse::<Timestamp>().unwrap(), time.parse::<Timestamp>().unwrap());
        let fraction = fixed.split_once('.').unwrap().1;
        prop_assert_eq!(fraction.trim_end_matches("+02:00").trim_end_matches('Z').len(), 9);
    }
}
