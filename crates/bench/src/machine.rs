//! What the operating system knows: disks, memory, load. Everything through small programs and `/proc`.

use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use crate::Result;

/// File systems on which a sync costs nothing.
const IN_MEMORY: [&str; 2] = ["tmpfs", "ramfs"];
/// Bytes in a block as file sizes on disk are counted.
const BLOCK_BYTES: u64 = 512;
/// The unit in which Linux tells processor times.
const TICK: Duration = Duration::from_millis(10);
/// Where a process's own times are among the fields of `stat`, as proc(5) counts them, and those of its ended children.
const OWN: usize = 14;
const ENDED: usize = 16;

/// What `command` prints. Anything but success is an error with what it complained about.
pub fn output(command: &mut Command) -> Result<String> {
    let name = command.get_program().to_string_lossy().into_owned();
    let output =
        command.stdin(Stdio::null()).output().map_err(|error| format!("starting {name}: {error}"))?;
    if !output.status.success() {
        let said = String::from_utf8_lossy(&output.stderr);
        return Err(format!("{name} failed ({}): {}", output.status, said.trim()).into());
    }
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

/// The kind of file system that `folder` is on, and how many bytes are free there.
pub fn file_system(folder: &Path) -> Result<(String, u64)> {
    let table = output(Command::new("df").args(["--block-size=1", "--output=fstype,avail"]).arg(folder))?;
    let mut words = table.lines().nth(1).unwrap_or_default().split_whitespace();
    match (words.next(), words.next().map(str::parse)) {
        (Some(kind), Some(Ok(free))) => Ok((kind.to_owned(), free)),
        _ => Err(format!("df said nothing about {}: {table}", folder.display()).into()),
    }
}

/// Refuses a folder where the figures would mean nothing because syncs cost nothing there.
pub fn check_disk(folder: &Path) -> Result<()> {
    let (kind, _) = file_system(folder)?;
    if IN_MEMORY.contains(&kind.as_str()) {
        return Err(format!("{} is in memory ({kind}): choose a disk", folder.display()).into());
    }
    Ok(())
}

/// Writes back everything, so that no engine waits for what another one left.
pub fn write_back() -> Result<()> {
    output(&mut Command::new("sync"))?;
    Ok(())
}

/// Takes the pages of all files in `folder` out of memory, as if the machine had just been started.
pub fn forget_pages(folder: &Path) -> Result<()> {
    write_back()?;
    for file in files(folder)? {
        let input = format!("if={}", file.display());
        output(Command::new("dd").args([&input, "iflag=nocache", "count=0", "status=none"]))?;
    }
    Ok(())
}

/// Reads all files in `folder` once, so that no engine pays for those that were there before it.
pub fn read_pages(folder: &Path) -> Result<()> {
    for file in files(folder)? {
        io::copy(&mut fs::File::open(file)?, &mut io::sink())?;
    }
    Ok(())
}

/// How much of the disk the files in `folder` take, without `PostgreSQL`'s log, which is not where records stay.
pub fn disk_bytes(folder: &Path) -> Result<u64> {
    let stays = |file: &PathBuf| !file.iter().any(|part| part == "pg_wal");
    let sizes = files(folder)?.into_iter().filter(stays).map(fs::metadata);
    let mut bytes = 0;
    for size in sizes {
        bytes += size?.blocks() * BLOCK_BYTES;
    }
    Ok(bytes)
}

/// All files in `folder` and in the folders in it.
fn files(folder: &Path) -> Result<Vec<PathBuf>> {
    let (mut open, mut files) = (vec![folder.to_owned()], Vec::new());
    while let Some(folder) = open.pop() {
        for entry in fs::read_dir(folder)? {
            let entry = entry?;
            let kind = entry.file_type()?;
            if kind.is_dir() {
                open.push(entry.path());
            } else if kind.is_file() {
                files.push(entry.path());
            }
        }
    }
    Ok(files)
}

/// The memory of a process and its children: what they share with others counts in part.
pub fn memory_bytes(process: u32) -> Result<u64> {
    let mut bytes = 0;
    for rollup in told(process, "smaps_rollup")? {
        bytes += proportional(&rollup).ok_or("no Pss in smaps_rollup")?;
    }
    Ok(bytes)
}

/// The processor time that a process and its children, those that still run, have used.
pub fn processor_time(process: u32) -> Result<Duration> {
    let mut ticks = 0;
    for stat in told(process, "stat")? {
        ticks += ticks_in(&stat, OWN).ok_or("no times in stat")?;
    }
    Ok(TICK * ticks)
}

/// The same with those that have ended: it never goes down, also when a server lets children go.
pub fn family_time(process: u32) -> Result<Duration> {
    let stat = fs::read_to_string(format!("/proc/{process}/stat"))?;
    Ok(processor_time(process)? + TICK * ticks_in(&stat, ENDED).ok_or("no times in stat")?)
}

/// The words that a process was started with.
pub fn command_line(process: u32) -> Result<Vec<String>> {
    let line = fs::read_to_string(format!("/proc/{process}/cmdline"))?;
    Ok(line.trim_end_matches('\0').split('\0').map(str::to_owned).collect())
}

/// The processor time that this process has used, with that of children which have ended and were waited for.
pub fn own_time() -> Result<Duration> {
    let stat = fs::read_to_string("/proc/self/stat")?;
    Ok(TICK * (ticks_in(&stat, OWN).ok_or("no times in stat")? + ticks_in(&stat, ENDED).ok_or("no times")?))
}

/// What `/proc` tells in `file` about a process and its children.
fn told(process: u32, file: &str) -> Result<Vec<String>> {
    let children = fs::read_to_string(format!("/proc/{process}/task/{process}/children")).unwrap_or_default();
    let mut told = vec![fs::read_to_string(format!("/proc/{process}/{file}"))?];
    for child in children.split_whitespace() {
        // One may have ended meanwhile.
        told.extend(fs::read_to_string(format!("/proc/{child}/{file}")));
    }
    Ok(told)
}

/// The processes that this one has started and that still run.
pub fn own_children() -> Vec<u32> {
    let tasks = fs::read_dir("/proc/self/task").into_iter().flatten().flatten();
    let children = tasks.filter_map(|task| fs::read_to_string(task.path().join("children")).ok());
    children
        .flat_map(|ids| ids.split_whitespace().filter_map(|id| id.parse().ok()).collect::<Vec<_>>())
        .collect()
}

/// The ticks in user mode and in the kernel, from the field `first` on. The second field may hold blanks.
fn ticks_in(stat: &str, first: usize) -> Option<u32> {
    let mut fields = stat.rsplit_once(')')?.1.split_whitespace().skip(first - 3);
    Some(fields.next()?.parse::<u32>().ok()? + fields.next()?.parse::<u32>().ok()?)
}

fn proportional(rollup: &str) -> Option<u64> {
    let line = rollup.lines().find_map(|line| line.strip_prefix("Pss:"))?;
    Some(line.split_whitespace().next()?.parse::<u64>().ok()? * 1024)
}

/// How many processes waited for a processor on average in the last minute, as text.
pub fn load() -> String {
    let load = fs::read_to_string("/proc/loadavg").unwrap_or_default();
    load.split_whitespace().next().unwrap_or("unknown").to_owned()
}

/// The processor time that everybody has used since the machine started, with what its host took away.
pub fn busy_time() -> Duration {
    TICK * busy_in(&fs::read_to_string("/proc/stat").unwrap_or_default())
}

fn busy_in(stat: &str) -> u32 {
    let first = stat.lines().next().unwrap_or_default();
    let times = first.split_whitespace().skip(1).map(|time| time.parse::<u32>().unwrap_or_default());
    // user nice system idle iowait irq softirq steal; what follows is counted in user already.
    times.take(8).enumerate().filter(|(at, _)| !matches!(at, 3 | 4)).map(|(_, time)| time).sum()
}

/// How many processors there are.
pub fn processors() -> u32 {
    std::thread::available_parallelism().map_or(1, |count| u32::try_from(count.get()).unwrap_or(u32::MAX))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_tables_of_proc_are_read() {
        assert_eq!(proportional("00-ff ---p [rollup]\nRss: 9 kB\nPss:     7 kB\n"), Some(7 * 1024));
        assert_eq!(proportional("Rss: 9 kB\n"), None);
        assert_eq!(busy_in("cpu  1 2 3 4 5 6 7 8 9 10\ncpu0 1\n"), 1 + 2 + 3 + 6 + 7 + 8);
        let stat = "7 (a (b) c) S 1 7 7 0 -1 4 1 2 3 4 50 60 7 8 20 0";
        assert_eq!((ticks_in(stat, OWN), ticks_in(stat, ENDED)), (Some(110), Some(15)));
        assert!(memory_bytes(std::process::id()).unwrap() > 0);
        processor_time(std::process::id()).unwrap();
        own_time().unwrap();
        let own = std::process::id();
        assert!(family_time(own).unwrap() >= Duration::ZERO);
        assert!(!command_line(own).unwrap()[0].is_empty());
        let mut child = Command::new("sleep").arg("60").spawn().unwrap();
        assert!(own_children().contains(&child.id()));
        child.kill().unwrap();
        child.wait().unwrap();
    }

    #[test]
    fn a_program_that_fails_is_an_error_with_its_words() {
        let error = output(Command::new("sh").args(["-c", "echo broken >&2; exit 3"])).unwrap_err();
        assert!(error.to_string().contains("broken"), "{error}");
    }
}
