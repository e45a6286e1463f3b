// One object: its layout as pahole prints it, with heat, holes, and who writes what.

/** Lines of an object that are listed byte by byte; what lies beyond is listed where it was touched. */
const LINES_MAX = 64;

/** The objects of a run, by their waits. */
function objectsOf(run) {
  if (run.objectsByWaits) return run.objectsByWaits;
  const by = new Map();
  for (const line of run.lines) {
    const one = by.get(line.object) ?? { name: line.object, lines: [], waits: 0 };
    one.lines.push(line);
    one.waits += line.waits;
    by.set(line.object, one);
  }
  run.objectsByWaits = [...by.values()].sort((a, b) => b.waits - a.waits);
  return run.objectsByWaits;
}

/** Bytes of an object: of its layout, or up to the last line that was touched. */
function sizeOf(run, object) {
  const layout = run.layouts[object.name];
  const known = layout ? Math.max(0, ...layout.map((field) => field.offset + field.size * (field.count ?? 1))) : 0;
  return Math.max(known, ...object.lines.map((line) => (line.line + 1) * LINE - (known ? LINE - 1 : 0)));
}

/** The words of an object, holes between them, and the first word of each line. */
function layoutRows(run, object) {
  const size = sizeOf(run, object);
  const touchedLines = [...new Set(object.lines.map((line) => line.line))].sort((a, b) => a - b);
  const all = Math.ceil(size / LINE) <= LINES_MAX;
  const lines = all ? Array.from({ length: Math.ceil(size / LINE) }, (_, line) => line) : touchedLines;
  const rows = [];
  let [end, last] = [0, -1];
  for (const line of lines) {
    const own = wordsOf(run, object.name, object.lines.filter((one) => one.line === line), line * LINE, (line + 1) * LINE).filter((one) => one.offset >= end || last < 0 || one.offset >= line * LINE);
    if (line !== last + 1) {
      rows.push({ gap: 'lines ' + (last + 1) + ' to ' + (line - 1) + ' were not waited for' });
      end = line * LINE;
    }
    rows.push({ line, waits: sum(object.lines.filter((one) => one.line === line), (one) => one.waits) });
    for (const word of own) {
      if (word.offset > end) rows.push({ hole: true, offset: end, size: word.offset - end });
      if (word.offset + word.size > end) rows.push(isPadding(word) ? { ...word, hole: true } : word);
      end = Math.max(end, word.offset + word.size);
    }
    last = line;
  }
  return { size, rows, all };
}

/** Whether a word is padding with a name: it has no description, and nothing touches it. */
const isPadding = (word) => /^(hole|_?pad)/.test(word.name) && !word.doc && !word.loads && !word.stores;

/** CPUs by part that missed where they write a word. */
function writers(word) {
  const counts = [];
  for (const field of word.fields ?? []) {
    for (const site of field.sites.filter(isWrite)) (site.cpus_by_part ?? []).forEach((count, part) => { counts[part] = Math.max(counts[part] ?? 0, count); });
  }
  return counts;
}

function objectView(place, run, [name]) {
  const objects = objectsOf(run);
  if (objects.length === 0) {
    place.append(missing('This run has no objects: no line was waited for, or it ran natively.'));
    return undefined;
  }
  const detail = el('div', { class: 'detail' });
  const chosen = objects.find((one) => one.name === name) ?? objects[0];
  const list = listBox('Objects', objects, (one) => [el('span', { class: 'name' }, one.name), el('span', { class: 'value' }, percent(one.waits / run.waits))], chosen, (one) => {
    history.replaceState(null, '', '#/object/' + runs.indexOf(run) + '/' + encodeURIComponent(one.name));
    show(one);
  });

  function show(object) {
    const { size, rows, all } = layoutRows(run, object);
    const holes = sum(rows.filter((row) => row.hole), (row) => row.size);
    const most = { loads: Math.max(1, ...rows.map((row) => row.loads || 0)), stores: Math.max(1, ...rows.map((row) => row.stores || 0)) };
    const waits = object.waits || 1;
    const instances = new Set(object.lines.map((line) => line.index)).size;
    const heat = (part) => ({ '--heat': (part || 0).toFixed(3) });
    const body = rows.map((row) => {
      if (row.gap) return el('tr', { class: 'gap' }, el('td', { colspan: 7 }, row.gap));
      if (row.hole) return el('tr', { class: 'holes' }, el('td', { class: 'number' }, hexadecimal(row.offset)), el('td', { class: 'number' }, String(row.size)), el('th', { scope: 'row', colspan: 5 }, 'hole of ' + plural(row.size, 'byte') + (row.name ? ' (' + row.name + ')' : '')));
      if (row.line !== undefined) return el('tr', { class: 'line' }, el('th', { scope: 'rowgroup', colspan: 5 }, 'line ' + row.line), el('td', { class: 'number bars' }, bar(row.waits / waits, percent(row.waits / waits))), el('td'));
      const by = writers(row);
      return el('tr', null, el('td', { class: 'number' }, hexadecimal(row.offset)), el('td', { class: 'number' }, row.guessed ? '≤ ' + row.size : String(row.size)),
        el('th', { scope: 'row', title: row.doc }, el('code', null, row.name), row.doc ? el('div', { class: 'faint' }, row.doc.length > 90 ? row.doc.slice(0, 89) + '…' : row.doc) : null),
        el('td', { class: 'number heat reads', ...heat(row.loads / most.loads) }, row.loads ? short(row.loads) : '·'),
        el('td', { class: 'number heat writes', ...heat(row.stores / most.stores) }, row.stores ? short(row.stores) : '·'),
        el('td', { class: 'number heat', ...heat(row.waits / waits) }, row.waits ? percent(row.waits / waits) : '·'),
        el('td', null, by.length ? [spread(by), ' ', plural(sum(by, (count) => count || 0), 'CPU')] : ''));
    });
    const heads = [['offset', 1], ['size', 1], ['field', 0], ['loads', 1], ['stores', 1], ['waits', 1], ['CPUs that write', 0]].map(([head, number]) => el('th', { scope: 'col', class: number ? 'number' : null }, head));
    const lines = el('div', { class: 'chips' }, object.lines.slice(0, 40).map((line) => el('a', { href: lineAddress(run, line) }, (line.index === undefined ? '' : '[' + line.index + '], ') + 'line ' + line.line, ' ', el('span', { class: 'value' }, percent(line.waits / run.waits)))));
    detail.replaceChildren(el('h2', null, object.name),
      el('p', null, plural(size, 'byte') + ', ' + plural(Math.ceil(size / LINE), 'line') + ' of ' + LINE + '; ' + (run.layouts[object.name]?.length ? plural(holes, 'byte') + ' in holes' : 'the layout is not known, so only touched bytes are listed') +
        (instances > 1 ? '; ' + instances + ' objects of this name together' : '') + '. ' + percent(object.waits / run.waits) + ' of all waits.' + (all ? '' : ' Large: lines that were waited for are listed.')),
      el('h3', null, 'Its contended lines'), lines,
      scrolled('Layout of ' + object.name, el('table', { class: 'layout' }, el('caption', null, 'Layout'), el('thead', null, el('tr', null, heads)), el('tbody', null, body))));
  }

  place.append(el('div', { class: 'split' }, list.element, detail));
  show(chosen);
  return { '[': () => list.step(-1), ']': () => list.step(1) };
}
