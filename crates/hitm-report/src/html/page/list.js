// A list of thousands that stays fluid: only the rows in sight are in the page.

const ROW = 30;

/**
 * A list box with a filter. `items` have a name; `row(item)` makes the content of a row; `chosen`
 * is called with the item that the keyboard or the pointer comes to.
 */
function listBox(label, items, row, selected, chosen) {
  let [shown, at] = [items, items.indexOf(selected)];
  const id = 'list-' + label.replaceAll(' ', '-');
  const space = el('div', { class: 'space', role: 'presentation' });
  const box = el('div', { class: 'list', role: 'listbox', tabindex: 0, 'aria-label': label, scroll: draw, keydown: key }, space);
  const count = el('p', { class: 'count', role: 'status' });
  const filter = el('input', { type: 'search', placeholder: 'Filter', 'aria-label': 'Filter ' + label, input: narrow, class: 'filter' });

  function narrow() {
    const wanted = filter.value.toLowerCase();
    shown = items.filter((item) => item.name.toLowerCase().includes(wanted));
    at = shown.indexOf(selected);
    box.scrollTop = 0;
    draw();
  }

  function draw() {
    space.style.height = shown.length * ROW + 'px';
    count.textContent = shown.length === items.length ? plural(items.length, 'entry', 'entries') : shown.length + ' of ' + items.length;
    const first = Math.max(0, Math.floor(box.scrollTop / ROW) - 4);
    const last = Math.min(shown.length, first + Math.ceil((box.clientHeight || 480) / ROW) + 8);
    space.replaceChildren(...shown.slice(first, last).map((item, index) => {
      const place = first + index;
      const option = el('div', { class: 'row', role: 'option', id: id + '-' + place, 'aria-selected': String(place === at),
        'aria-setsize': shown.length, 'aria-posinset': place + 1, click: () => go(place) }, row(item));
      option.style.top = place * ROW + 'px';
      return option;
    }));
    if (at >= first && at < last) box.setAttribute('aria-activedescendant', id + '-' + at);
    else box.removeAttribute('aria-activedescendant');
  }

  function go(place) {
    if (!shown.length) return;
    at = Math.max(0, Math.min(shown.length - 1, place));
    selected = shown[at];
    const top = at * ROW;
    if (top < box.scrollTop) box.scrollTop = top;
    if (top + ROW > box.scrollTop + box.clientHeight) box.scrollTop = top + ROW - box.clientHeight;
    draw();
    chosen(selected);
  }

  function key(event) {
    const page = Math.max(1, Math.floor(box.clientHeight / ROW) - 1);
    const steps = { ArrowDown: at + 1, ArrowUp: at - 1, j: at + 1, k: at - 1, PageDown: at + page, PageUp: at - page, Home: 0, End: shown.length - 1 };
    if (event.ctrlKey || event.metaKey || event.altKey || !(event.key in steps)) return;
    event.preventDefault();
    event.stopPropagation();
    go(steps[event.key]);
  }

  requestAnimationFrame(() => {
    if (at > 0) box.scrollTop = Math.max(0, at * ROW - box.clientHeight / 2);
    draw();
  });
  draw();
  return { element: el('aside', { class: 'side', 'aria-label': label }, filter, count, box), step: (by) => go(at + by) };
}
