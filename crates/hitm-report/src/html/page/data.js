// The data, unpacked, and what views compute of them.

/** Undoes `pack.rs`. */
function unpack({ keys, strings, value }) {
  const open = (one) => {
    if (typeof one === 'string') return strings[parseInt(one, 36)];
    if (!Array.isArray(one)) return one;
    const form = one[0];
    if (form < 0) return one.slice(1).map(open);
    const object = Object.create(null);
    keys[form].forEach((key, index) => { object[key] = open(one[index + 1]); });
    return object;
  };
  return open(value);
}

/** The layouts of a program's objects that have lines: of variables, and of blocks by their types. */
function layoutsOf(run, declared) {
  const found = Object.create(null);
  for (const line of run.lines ?? []) {
    const own = declared.find((one) => one.name === line.object);
    if (own) found[line.object] = own.fields;
    const kind = line.object.includes(' of ') ? line.object.split(' of ')[0] : null;
    const type = own ? null : declared.find((one) => one.name === kind && !one.address);
    if (!type) continue;
    // A block may be an array of its type: as far as it was touched.
    const indices = line.fields.map((field) => Number(/^\[(\d+)\]/.exec(field.field)?.[1] ?? -1));
    const last = Math.max((found[line.object]?.[0]?.count ?? 0) - 1, ...indices);
    found[line.object] = last < 0 ? type.fields : [{ name: '', offset: 0, size: type.size, count: last + 1, fields: type.fields }];
  }
  return found;
}

/** Gives the stores that invalidated copies their keys again: `shorten` in mod.rs has one text and a share for each. */
function invalidators(run) {
  for (const line of run.lines) {
    for (const field of line.fields) {
      for (const site of field.sites) {
        const pairs = site.invalidated_by ?? [];
        site.invalidated_by = [];
        for (let at = 0; at < pairs.length; at += 2) {
          const [name, place, location] = pairs[at].split('\n');
          site.invalidated_by.push({ field: name, function: place, location, share: pairs[at + 1] / 1000 });
        }
      }
    }
  }
}

/** Moves what begins within a line to where it stands in the object's first line. */
function aligned(run) {
  for (const line of run.lines) {
    const within = line.object_at ? Number(BigInt(line.object_at) % 64n) : 0;
    if (!within) continue;
    for (const field of line.fields) field.offset += within;
    if (run.within?.[line.object] !== undefined) continue;
    (run.within ??= Object.create(null))[line.object] = within;
    run.layouts[line.object] = run.layouts[line.object]?.map((field) => ({ ...field, offset: field.offset + within }));
  }
}

const { files, verdicts } = unpack(JSON.parse(document.getElementById('data').textContent));
const sweeps = files.filter((file) => file.sweep).map((file) => ({ ...file.sweep, file: file.name }));
const runs = files.filter((file) => file.result).flatMap((file) => file.result.runs.map((run) => ({
  ...run,
  file: file.name,
  lines: run.lines ?? [],
  objects: run.objects ?? [],
  layouts: { ...run.layouts, ...layoutsOf(run, file.result.declared ?? []) },
  on: file.result.machines.find((machine) => machine.name === run.machine) ?? { name: run.machine },
})));

/** Names runs by what differs between them. */
function nameRuns() {
  const parts = [['file', 'file'], ['workload', 'workload'], ['profile', 'profile'], ['mitigation', 'mitigation'],
    ['machine', 'machine'], ['arbitration', 'arbitration'], ['coherence', 'coherence'], ['host', 'host']];
  const differing = parts.filter(([, key]) => new Set(runs.map((run) => run[key] ?? '')).size > 1);
  const used = differing.length > 0 ? differing : [['workload', 'workload'], ['mitigation', 'mitigation']];
  for (const run of runs) run.name = used.map(([, key]) => run[key]).filter(Boolean).join(', ') || 'run';
}
nameRuns();

const waitOf = (site) => (site.misses ?? 0) * (site.cycles ?? 0);
const fieldWaits = (field) => sum(field.sites, waitOf);
const lineName = (line) => line.object + (line.index === undefined ? '' : '[' + line.index + ']') + ', ' + line.line;
const isWrite = (site) => site.kind !== 'load';

/** Computes what several views use of a run, once. */
function prepare(run) {
  if (run.prepared) return run;
  run.prepared = true;
  aligned(run);
  invalidators(run);
  for (const line of run.lines) {
    line.waits = sum(line.fields, fieldWaits);
    line.name = lineName(line);
  }
  // Several blocks of memory may have one name: their addresses tell them apart.
  const names = Map.groupBy ? Map.groupBy(run.lines, (line) => line.name) : new Map();
  for (const same of names.values()) if (same.length > 1) same.forEach((line) => { line.name += ' at …' + (line.address ?? '').slice(-6); });
  run.waits = Math.max(run.cycles_waited ?? 0, sum(run.lines, (line) => line.waits));
  return run;
}

/** The share of a line's waits that follow a write to another field of the line. */
function falselyShared(line) {
  let [other, all] = [0, 0];
  for (const field of line.fields) {
    for (const site of field.sites) {
      const [wait, by] = [waitOf(site), site.invalidated_by ?? []];
      const known = sum(by, (one) => one.share);
      all += wait * Math.min(1, known);
      other += wait * sum(by.filter((one) => one.field !== field.field), (one) => one.share);
    }
  }
  return all > 0 ? other / all : null;
}

/** Who waits for whom: the waits of each place by the place that invalidated its copy. */
function culprits(line) {
  const pairs = new Map();
  for (const field of line.fields) {
    for (const site of field.sites) {
      for (const by of site.invalidated_by ?? []) {
        const [loser, taker] = [field.field + '\nin ' + site.function, by.field + '\nin ' + by.function];
        const key = JSON.stringify([loser, taker]);
        const pair = pairs.get(key) ?? { loser, taker, wait: 0, field: field.field, site, by };
        pair.wait += waitOf(site) * by.share;
        pairs.set(key, pair);
      }
    }
  }
  return [...pairs.values()].sort((a, b) => b.wait - a.wait);
}

/** The numbers of `0-39,240-279`. */
function numbers(ranges) {
  const all = [];
  for (const range of (ranges ?? '').split(',').filter(Boolean)) {
    const [first, last] = range.split('-').map(Number);
    for (let number = first; number <= (last ?? first); number += 1) all.push(number);
  }
  return all;
}

/** The parts by which a machine's exchanges can be shown, finest first: names, and the group of each counted part. */
function groupings(machine) {
  const domains = machine.domains ?? [];
  const domainOfCore = new Map(domains.flatMap((domain, number) => numbers(domain.cores).map((core) => [core, number])));
  const byCore = machine.counted_by === 'core';
  const counted = byCore ? machine.cores : domains.length;
  const domainOf = (part) => (byCore ? domainOfCore.get(part) ?? 0 : part);
  const grouping = (name, of) => {
    const group = Array.from({ length: counted }, (_, part) => of(part));
    return { name, group, names: Array.from({ length: Math.max(-1, ...group) + 1 }, (_, one) => name + ' ' + one) };
  };
  const all = [];
  if (byCore) {
    if (machine.cores === machine.cpus) all.push(grouping('CPU', (part) => part));
    else all.push(grouping('core', (part) => part));
  }
  all.push(grouping('LLC', domainOf), grouping('node', (part) => domains[domainOf(part)]?.node ?? 0),
    grouping('package', (part) => domains[domainOf(part)]?.package ?? 0));
  return all.filter((one, index) => index === 0 || one.names.length !== all[index - 1].names.length);
}

/** The matrix of who took lines from whom, with a choice of parts. */
function exchanges(title, machine, exchanged) {
  if (!exchanged?.length) {
    return missing(title + ': this file has no counts by part of the machine. No copy was invalidated, or an earlier version wrote it; a new run has them.');
  }
  const all = groupings(machine);
  const place = el('div');
  const show = (name) => {
    const { group, names } = all.find((one) => one.name === name);
    const sums = new Map();
    for (const [loser, taker, , cycles] of exchanged) {
      const key = group[loser] * names.length + group[taker];
      sums.set(key, (sums.get(key) ?? 0) + cycles);
    }
    place.replaceChildren(matrix(title, 'waits ↓ after a write by →', names, names,
      (row, column) => sums.get(row * names.length + column) ?? 0, short));
  };
  // The finest that is still a table, else the coarsest.
  const usual = (all.find((one) => one.names.length <= TABLE_MAX) ?? all[all.length - 1]).name;
  show(usual);
  return el('div', null, all.length > 1 ? choice('Parts', all.map(({ name }) => [name, name]), usual, show) : null, place);
}
