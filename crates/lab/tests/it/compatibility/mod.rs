//! Who works with whom, by operation: `docs/spec/compatibility.md` is what this test has found.
//!
//! Every cell of the page is an operation that was done for real between two programs, with what it
//! left looked at, or a reason why not. Where the page says something else than the run, the test
//! fails; this writes it again, to be read before it is committed:
//!
//! `GODWIT_GOLDEN=write cargo test -p godwit-lab --test it compatibility`
//!
//! `GODWIT_COLUMNS=lftp,curl` tries these columns alone. Versions are for the reader: the page has
//! those that it was written with, and they are not compared. Columns of programs that are not
//! installed stay as they are.

mod clients;
mod column;
mod operation;
mod place;
mod programs;
mod servers;

use std::{
    collections::BTreeMap,
    fmt::Write as _,
    fs,
    path::{Path, PathBuf},
    sync::{
        Mutex,
        atomic::{AtomicUsize, Ordering},
    },
};

use column::{Column, Outcome};
use operation::{OPERATIONS, Operation};
use place::Grounds;

use crate::support::{Need, am_root, have};

/// Cells at a time. Most of them wait for programs to start.
const AT_ONCE: usize = 4;

const HEAD: &str = "# Who works with whom

Each cell is an operation that the test `lab/compatibility` did between the two programs, and
looked at what it left; a number is the reason why it cannot be. The test run compares the page with
what it finds; `GODWIT_GOLDEN=write cargo test -p godwit-lab --test it compatibility` writes it
again. Versions are those that it was written with, on Debian 12.
";

const CLIENTS: &str = "
## Clients with godwitd

UberFTP is not among them: Debian 12 has no package of it.
";

const SERVERS: &str = "
## godwit with servers
";

#[test]
fn the_page_says_who_works_with_whom() {
    if !am_root("servers become their users") || !have(&[Need::Godwit, Need::Godwitd]) {
        return;
    }
    let path = page_path();
    let page = fs::read_to_string(&path).unwrap_or_default();
    let grounds = Grounds::new();
    let others = servers::Others::new(&grounds);
    let mut reasons = Reasons::default();
    let mut text = HEAD.to_owned();
    let mut wrong = Vec::new();
    for (head, columns) in [
        (CLIENTS, clients::columns(&grounds)),
        (SERVERS, servers::columns(&grounds, &others)),
    ] {
        text += head;
        let found = found(&columns, &mut wrong);
        table(&mut text, &columns, &found, &mut reasons, &page);
    }
    text += &reasons.list();
    let writes = std::env::var("GODWIT_GOLDEN").is_ok_and(|value| value == "write");
    if writes {
        fs::write(&path, &text).expect("writes the page");
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n\n"));
    if writes {
        return;
    }
    let (now, then) = (compared(&text), compared(&page));
    let differing = now.lines().zip(then.lines()).find(|(a, b)| a != b);
    assert!(
        now == then,
        "{} is not what was found; to write it again: GODWIT_GOLDEN=write cargo test -p godwit-lab \
         --test it compatibility\n{differing:#?}",
        path.display()
    );
}

fn page_path() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/spec/compatibility.md")
}

/// What each column that is here makes of each operation. What is wrong: a failure without a
/// reason, and a reason for what works.
fn found<'a>(
    columns: &[Column<'a>],
    wrong: &mut Vec<String>,
) -> BTreeMap<(&'a str, Operation), Outcome> {
    let here: Vec<&Column<'a>> = columns.iter().filter(|column| column.is_here()).collect();
    let cells: Vec<(&Column<'a>, Operation)> = OPERATIONS
        .iter()
        .flat_map(|operation| here.iter().map(|column| (*column, *operation)))
        .collect();
    let next = AtomicUsize::new(0);
    let outcomes = Mutex::new(BTreeMap::new());
    let faults = Mutex::new(Vec::new());
    std::thread::scope(|scope| {
        for _ in 0..AT_ONCE {
            scope.spawn(|| {
                while let Some((column, operation)) =
                    cells.get(next.fetch_add(1, Ordering::Relaxed))
                {
                    match column.try_out(*operation) {
                        Ok(outcome) => {
                            let mut outcomes = outcomes.lock().expect("no panic");
                            outcomes.insert((column.name, *operation), outcome);
                        }
                        Err(why) => faults.lock().expect("no panic").push(why),
                    }
                }
            });
        }
    });
    wrong.extend(faults.into_inner().expect("no panic"));
    outcomes.into_inner().expect("no panic")
}

/// Reasons in the order in which the page comes to them.
#[derive(Default)]
struct Reasons(Vec<String>);

impl Reasons {
    fn number(&mut self, why: &str) -> usize {
        let known = self.0.iter().position(|known| known == why);
        known.unwrap_or_else(|| {
            self.0.push(why.to_owned());
            self.0.len() - 1
        }) + 1
    }

    fn list(&self) -> String {
        let mut text = "\n## Reasons\n\n".to_owned();
        for (number, why) in (1..).zip(&self.0) {
            let _ = writeln!(text, "{number}. {why}");
        }
        text
    }
}

/// One line an operation, one column a peer. Of peers that are not here the page keeps what it
/// says.
fn table<'a>(
    text: &mut String,
    columns: &[Column<'a>],
    found: &BTreeMap<(&'a str, Operation), Outcome>,
    reasons: &mut Reasons,
    page: &str,
) {
    let heads = columns.iter().map(|column| {
        let version = match column.is_here() {
            true => column.version(),
            false => recorded(page, "", column.name).unwrap_or_default(),
        };
        format!("{}{VERSION}{version}", column.name)
    });
    let heads: Vec<String> = heads.collect();
    let _ = writeln!(text, "\n| | {} |", heads.join(" | "));
    let _ = writeln!(text, "|---|{}", "---|".repeat(columns.len()));
    for operation in OPERATIONS {
        let cells = columns.iter().map(|column| {
            let why = match found.get(&(column.name, *operation)) {
                Some(Outcome::Works) => return "yes".to_owned(),
                Some(Outcome::Fails(why)) => (*why).to_owned(),
                None => match recorded(page, operation.text(), column.name) {
                    Some(cell) if cell != "yes" => reason(page, &cell),
                    Some(cell) => return cell,
                    None => return "?".to_owned(),
                },
            };
            reasons.number(&why).to_string()
        });
        let cells: Vec<String> = cells.collect();
        let _ = writeln!(text, "| {} | {} |", operation.text(), cells.join(" | "));
    }
}

/// What stands between a name and its version.
const VERSION: &str = "<br>";

/// What a page says in a row and a column: of the row without a name, the version.
fn recorded(page: &str, row: &str, column: &str) -> Option<String> {
    fn cells(line: &str) -> Vec<&str> {
        line.split('|').map(str::trim).collect()
    }
    let mut lines = page.lines();
    loop {
        let head = cells(lines.find(|line| line.starts_with("| |"))?);
        let at = head
            .iter()
            .position(|head| head.split(VERSION).next() == Some(column));
        let Some(at) = at else { continue };
        if row.is_empty() {
            return Some(head[at].split(VERSION).nth(1)?.to_owned());
        }
        let mut rows = lines.by_ref().take_while(|line| line.starts_with('|'));
        let row = rows.find(|line| cells(line).get(1) == Some(&row))?;
        return Some((*cells(row).get(at)?).to_owned());
    }
}

/// The reason of a number in a page.
fn reason(page: &str, number: &str) -> String {
    let start = format!("{number}. ");
    let line = page.lines().find_map(|line| line.strip_prefix(&start));
    line.unwrap_or_default().to_owned()
}

/// A page without its versions.
fn compared(page: &str) -> String {
    let cell = |cell: &str| match cell.split_once(VERSION) {
        Some((name, _)) => format!("{name} "),
        None => cell.to_owned(),
    };
    let lines = page.lines().map(|line| {
        let cells: Vec<String> = line.split('|').map(cell).collect();
        cells.join("|") + "\n"
    });
    lines.collect()
}
