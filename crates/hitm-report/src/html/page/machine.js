// The machine as a map: packages, nodes, LLC domains and cores; their time; the traffic between them.

const METRICS = [
  ['kernel', 'kernel time', 'share of all of the core’s time in the kernel', ([kernel]) => kernel],
  ['idle', 'idle time', 'share of all of the core’s time that was idle', ([, idle]) => idle],
  ['busy', 'time of tasks', 'share of all of the core’s time in tasks', ([kernel, idle]) => Math.max(0, 1 - kernel - idle)],
];

/** One domain's cores as squares. */
function domainMap(number, domain, run, of, most) {
  const cores = numbers(domain.cores);
  const side = cores.length > 64 ? 9 : 14;
  const wide = Math.min(cores.length, Math.max(4, Math.ceil(Math.sqrt(cores.length * 1.6))));
  const squares = cores.map((core, index) => {
    const time = run.cores?.[core];
    const value = time ? of(time) : null;
    return svg('rect', { x: (index % wide) * side, y: Math.floor(index / wide) * side, width: side - 2, height: side - 2, rx: 2, class: value === null ? 'hole' : 'cost core', 'fill-opacity': value === null ? 1 : (0.08 + 0.92 * share(value, most)).toFixed(3) },
      svg('title', null, 'core ' + core + (time ? ': kernel ' + percent(time[0]) + ', idle ' + percent(time[1]) + ', tasks ' + percent(METRICS[2][3](time)) : '')));
  });
  const values = cores.map((core) => run.cores?.[core]).filter(Boolean).map(of);
  const mean = values.length ? percent(sum(values, (value) => value) / values.length) : '-';
  const [width, height] = [wide * side, Math.ceil(cores.length / wide) * side];
  return el('div', { class: 'domain' }, el('div', { class: 'faint' }, 'LLC ' + number),
    svg('svg', { width, height, viewBox: '0 0 ' + width + ' ' + height, role: 'img', 'aria-label': 'LLC ' + number + ': ' + plural(cores.length, 'core') + ', mean ' + mean }, squares),
    el('div', null, el('span', { class: 'value' }, mean), el('span', { class: 'faint' }, ', ' + plural(cores.length, 'core'))));
}

/** The domains of a package: in its nodes, where it is divided into several. */
function packageMap(domains, draw) {
  const nodes = [...new Set(domains.map(({ domain }) => domain.node))];
  const group = (own) => el('div', { class: 'domains' }, own.map(({ number, domain }) => draw(number, domain)));
  if (nodes.length === 1) return [el('p', { class: 'faint' }, 'node ' + nodes[0]), group(domains)];
  return el('div', { class: 'nodes' }, nodes.map((node) => el('section', { class: 'node', 'aria-label': 'Node ' + node }, el('h4', null, 'Node ' + node),
    group(domains.filter(({ domain }) => domain.node === node)))));
}

function map(run) {
  const domains = run.on.domains ?? [];
  if (domains.length === 0) return missing('This file has no map of the machine: an earlier version wrote it. A new run has one.');
  const place = el('div');
  const show = (wanted) => {
    const [, name, words, of] = METRICS.find(([key]) => key === wanted);
    const most = (run.cores ?? []).map(of).reduce((a, b) => Math.max(a, b), 1e-9);
    const packages = [...new Set(domains.map((domain) => domain.package))];
    place.replaceChildren(
      el('p', { class: 'key' }, run.cores?.length ? 'Darker: more ' + name + ' (' + words + '); the darkest is ' + percent(most) + '.' : 'No time by core was measured.'),
      el('div', { class: 'map' }, packages.map((one) => el('section', { class: 'package', 'aria-label': 'Package ' + one }, el('h3', null, 'Package ' + one),
        packageMap(domains.map((domain, number) => ({ number, domain })).filter(({ domain }) => domain.package === one), (number, domain) => domainMap(number, domain, run, of, most))))));
  };
  show('kernel');
  return el('div', null, choice('Colour', METRICS.map(([key, name]) => [key, name]), 'kernel', show), place);
}

/** The time of each domain, as a table. */
function domainTimes(run) {
  const domains = run.on.domains ?? [];
  if (!run.cores?.length || domains.length === 0) return '';
  const rows = domains.map((domain, number) => {
    const times = numbers(domain.cores).map((core) => run.cores[core]).filter(Boolean);
    const mean = (of) => sum(times, of) / Math.max(1, times.length);
    return { number, domain, kernel: mean(METRICS[0][3]), idle: mean(METRICS[1][3]), busy: mean(METRICS[2][3]) };
  });
  return table('Time by LLC domain', [
    { head: 'LLC', cell: (row) => String(row.number) },
    { head: 'package', number: true, cell: (row) => String(row.domain.package) },
    { head: 'node', number: true, cell: (row) => String(row.domain.node) },
    { head: 'CPUs', cell: (row) => row.domain.cpus },
    { head: 'tasks', number: true, class: 'bars user', cell: (row) => bar(row.busy, percent(row.busy)) },
    { head: 'kernel', number: true, class: 'bars', cell: (row) => bar(row.kernel, percent(row.kernel)) },
    { head: 'idle', number: true, class: 'bars idle', cell: (row) => bar(row.idle, percent(row.idle)) },
  ], rows);
}

function machineView(place, run) {
  const on = run.on;
  const parts = [['packages', on.packages], ['nodes', on.nodes], ['LLC domains', on.llcs], ['cores', on.cores], ['CPUs', on.cpus]].filter(([, count]) => count);
  const model = Object.entries(on.model ?? {});
  place.append(
    el('h2', null, on.name || 'The machine'),
    on.source ? el('p', { class: 'faint' }, on.source) : '',
    on.unknown_processor ? missing('This processor has no cost table of its own: all figures use another family’s costs.') : '',
    el('dl', { class: 'figures' }, parts.map(([name, count]) => el('div', null, el('dt', null, name), el('dd', null, count.toLocaleString('en-US'))))),
    el('h2', null, 'Map'), map(run), domainTimes(run),
    el('h2', null, 'Lines that change hands'),
    el('p', null, 'A part waits for a line because another part has written it since. Over all lines of the run.'),
    exchanges('Cycles waited, by part of the machine', on, run.exchanged));
  if (model.length) {
    place.append(el('details', null, el('summary', null, 'The model’s ' + plural(model.length, 'parameter') + (on.cost_table ? ', table ' + on.cost_table : '')),
      table('Parameters', [{ head: 'parameter', cell: ([name]) => el('code', null, name) }, { head: 'value', number: true, cell: ([, value]) => String(value) }], model)));
  }
}
