// Two runs: before and after by field, and the fields that moved.

/** Fields that are listed, those that changed most. */
const FIELDS_SHOWN = 25;

/** Fields that moved, of those that are listed. */
const MOVED_SHOWN = 30;

/** Units of work that a run did, where its metric is a rate; else the measured seconds. */
const workOf = (run) => (run.metric.unit === '1/s' && run.metric.value > 0 ? run.metric.value : 1) * (run.simulated_seconds || 1);

/** The waits of each field of a run, per unit of work. */
function fieldCosts(run) {
  const costs = new Map();
  for (const line of run.lines) {
    for (const field of line.fields) {
      const key = JSON.stringify([line.object, field.field]);
      const one = costs.get(key) ?? { object: line.object, field: field.field, offset: field.offset, waits: 0 };
      one.waits += fieldWaits(field) / workOf(run);
      costs.set(key, one);
    }
  }
  return costs;
}

/** Where the words of an object stand in each of two runs. */
function moves(before, after, object) {
  const touchedOf = (run) => objectsOf(run).find((one) => one.name === object);
  const wordsIn = (run) => {
    const own = touchedOf(run) ?? { name: object, lines: [] };
    return wordsOf(run, object, own.lines, 0, Math.min(sizeOf(run, own), LINES_MAX * LINE));
  };
  const by = new Map();
  for (const [key, run] of [['before', before], ['after', after]]) {
    for (const word of wordsIn(run)) by.set(word.name, { name: word.name, size: word.size, ...by.get(word.name), [key]: word });
  }
  return [...by.values()];
}

/** The objects of both runs in which a word has another place. */
function movedObjects(before, after) {
  const names = new Set([...Object.keys(before.layouts), ...objectsOf(before).map((one) => one.name)]);
  const both = [...names].filter((name) => after.layouts[name] || objectsOf(after).some((one) => one.name === name));
  const all = both.map((name) => ({ name, words: moves(before, after, name) }));
  return all.filter((one) => one.words.some((word) => word.before && word.after && word.before.offset !== word.after.offset));
}

/** An object's bytes in rows of lines; its words move from their place before to their place after. */
function moving(object) {
  const [cell, high, left] = [11, 26, 56];
  const ends = object.words.flatMap((word) => [word.before, word.after].filter(Boolean).map((one) => one.offset + one.size));
  const lines = Math.ceil(Math.max(LINE, ...ends) / LINE);
  const [width, height] = [left + LINE * cell + 8, lines * high + 20];
  const at = (word) => 'translate(' + (left + (word.offset % LINE) * cell) + 'px,' + (Math.floor(word.offset / LINE) * high + 16) + 'px)';
  const rows = Array.from({ length: lines }, (_, line) => [
    svg('rect', { x: left, y: line * high + 16, width: LINE * cell, height: high - 3, class: 'hole' }),
    svg('text', { x: left - 8, y: line * high + 32, 'text-anchor': 'end', class: 'tick' }, 'line ' + line),
  ]);
  const most = Math.max(1, ...object.words.flatMap((word) => [word.before?.waits ?? 0, word.after?.waits ?? 0]));
  const boxes = object.words.map((word) => {
    const [from, to] = [word.before ?? word.after, word.after ?? word.before];
    const moved = from.offset !== to.offset;
    const room = Math.floor((word.size * cell - 6) / 6.6);
    const box = svg('g', { class: 'word' + (moved ? ' moved' : '') }, svg('title', null, word.name + ': ' + hexadecimal(from.offset) + (moved ? ' to ' + hexadecimal(to.offset) : '') + ', ' + plural(word.size, 'byte')),
      svg('rect', { width: Math.max(2, Math.min(word.size, LINE) * cell - 1.5), height: high - 4, rx: 2 }),
      svg('rect', { width: Math.max(2, Math.min(word.size, LINE) * cell - 1.5), height: high - 4, rx: 2, class: 'cost', 'fill-opacity': (0.5 * share(Math.max(from.waits, to.waits), most)).toFixed(3) }),
      svg('text', { x: 3, y: 15 }, word.name.length <= room ? word.name : room > 3 ? '…' + word.name.slice(1 - room) : ''));
    return { box, from, to };
  });
  const show = (after) => boxes.forEach(({ box, from, to }) => { box.style.transform = at(after ? to : from); });
  const button = el('button', { type: 'button', 'aria-pressed': 'false', click: () => {
    const after = button.getAttribute('aria-pressed') !== 'true';
    button.setAttribute('aria-pressed', String(after));
    button.textContent = after ? 'Show before' : 'Show after';
    show(after);
  } }, 'Show after');
  show(false);
  const moved = object.words.filter((word) => word.before && word.after && word.before.offset !== word.after.offset);
  moved.sort((a, b) => b.before.waits + b.after.waits - a.before.waits - a.after.waits || a.before.offset - b.before.offset);
  const where = (word) => 'line ' + Math.floor(word.offset / LINE) + ', ' + hexadecimal(word.offset);
  return el('section', null, el('h3', null, object.name), el('p', null, plural(moved.length, 'field') + ' stand elsewhere. ', button),
    scrolled('Bytes of ' + object.name, svg('svg', { width, height, viewBox: '0 0 ' + width + ' ' + height, class: 'moving', role: 'img', 'aria-label': object.name + ': ' + moved.length + ' fields move; the table below has their places' }, rows, boxes.map(({ box }) => box))),
    table('Fields that moved, the hottest first' + (moved.length > MOVED_SHOWN ? ', ' + MOVED_SHOWN + ' of ' + moved.length : ''), [
      { head: 'field', cell: (word) => el('code', null, word.name) },
      { head: 'before', cell: (word) => where(word.before) },
      { head: 'after', cell: (word) => where(word.after) },
      { head: 'bytes', number: true, cell: (word) => String(word.size) },
    ], moved.slice(0, MOVED_SHOWN)));
}

/** What the letters of `verdicts` mean: `hitm compare` judges so. */
const VERDICTS = {
  b: 'better.',
  w: 'worse.',
  '=': 'no difference beyond both 95 % intervals.',
  '-': 'not judged: a run has no figure or no interval. More seeds or more time give one.',
};

/** What the difference of two runs' metrics means, in words. */
function verdict(before, after) {
  const [one, other] = [before.metric, after.metric];
  if (one.name !== other.name || one.unit !== other.unit) return 'These runs have different metrics: only their fields are compared.';
  const change = Number.isFinite((one.value ?? NaN) + (other.value ?? NaN)) && one.value ? (other.value - one.value) / Math.abs(one.value) : null;
  const text = change === null ? '' : ' ' + (change >= 0 ? '+' : '') + percent(change);
  return words(one.name) + text + ': ' + VERDICTS[verdicts[runs.indexOf(before)][runs.indexOf(after)]];
}

function compareView(place, run, [first, second]) {
  if (runs.length < 2) {
    place.append(missing('There is one run: give ', el('code', null, 'hitm report'), ' two files, or a file of several mitigations.'));
    return;
  }
  const base = runs.findIndex((one) => one.mitigation === 'baseline');
  const current = runs.indexOf(run);
  let before = runs[first] ? Number(first) : base >= 0 && base !== current ? base : 0;
  let after = runs[second] ? Number(second) : current !== before ? current : (before + 1) % runs.length;
  const options = runs.map((one, index) => [String(index), one.name]);
  const detail = el('div');
  const show = () => {
    history.replaceState(null, '', '#/compare/' + current + '/' + before + '/' + after);
    const [one, other] = [prepare(runs[before]), prepare(runs[after])];
    const [costs, later] = [fieldCosts(one), fieldCosts(other)];
    const rows = [...new Set([...costs.keys(), ...later.keys()])].map((key) => {
      const [from, to] = [costs.get(key), later.get(key)];
      return { ...(from ?? to), from: from?.waits ?? 0, to: to?.waits ?? 0 };
    });
    // Where a field was not waited for, its layout may still say where it stands.
    const stands = (run, costs, row) => costs.get(JSON.stringify([row.object, row.field]))?.offset ?? leaves(run.layouts[row.object], 0, Infinity).find((leaf) => leaf.name === row.field)?.offset;
    rows.sort((a, b) => Math.abs(b.to - b.from) - Math.abs(a.to - a.from));
    const most = Math.max(1e-12, ...rows.map((row) => Math.max(row.from, row.to)));
    const unit = one.metric.unit === '1/s' ? words(one.metric.name.replace(/_per_second$/, '').replace(/s$/, '')) : 'second';
    const moved = movedObjects(one, other);
    const at = (offset) => (offset === undefined ? '-' : 'line ' + Math.floor(offset / LINE) + ', ' + hexadecimal(offset));
    detail.replaceChildren(el('p', { class: 'verdict' }, verdict(one, other)),
      table('', [
        { head: 'figure', cell: (row) => row[0] }, { head: 'before', number: true, cell: (row) => row[1] }, { head: 'after', number: true, cell: (row) => row[2] },
      ], [[words(one.metric.name), figure(one.metric), figure(other.metric)], ['kernel share', percent(one.kernel_share), percent(other.kernel_share)], ['idle', percent(one.idle_share), percent(other.idle_share)],
        ['cycles waited per ' + unit, short(one.waits / workOf(one)), short(other.waits / workOf(other))], ['misses per ' + unit, short(one.misses / workOf(one)), short(other.misses / workOf(other))]]),
      el('h2', null, 'By field'), rows.length === 0 ? missing('Neither run has lines.') : table('Cycles waited per ' + unit + ', the largest change first' + (rows.length > FIELDS_SHOWN ? ', ' + FIELDS_SHOWN + ' of ' + rows.length : ''), [
        { head: 'object, field', cell: (row) => [row.object, ' ', el('code', null, row.field)] },
        { head: 'before', number: true, class: 'bars', cell: (row) => bar(row.from / most, short(row.from)) },
        { head: 'after', number: true, class: 'bars', cell: (row) => bar(row.to / most, short(row.to)) },
        { head: 'change', number: true, cell: (row) => (row.to >= row.from ? '+' : '-') + short(Math.abs(row.to - row.from)) },
        { head: 'place before', cell: (row) => at(stands(one, costs, row)) },
        { head: 'place after', cell: (row) => (stands(other, later, row) === stands(one, costs, row) ? 'the same' : at(stands(other, later, row))) },
      ], rows.slice(0, FIELDS_SHOWN)),
      el('h2', null, 'Fields that moved'), ...(moved.length ? moved.map(moving) : [missing('No field of the kept lines stands elsewhere.')]));
  };
  place.append(el('p', { class: 'choices' }, choice('Before', options, String(before), (chosen) => { before = Number(chosen); show(); }),
    choice('After', options, String(after), (chosen) => { after = Number(chosen); show(); })), detail);
  show();
}
