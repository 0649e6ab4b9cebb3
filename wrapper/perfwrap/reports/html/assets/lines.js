// One step, line by line: the source with what each line costs, the modules, and the stacks of the operations.

function drawLines() {
  const step = data.lines;
  if (!step) return;
  byId('lines').hidden = false;
  byId('lines').append(...[
    heading('lines', 'One step, line by line', 'All of one step of ' + step.time + ', from its recorded operations. A line has the operations that it calls, also through a library, and their backward. ' +
      'A step that was not watched took ' + step.bare + '.'),
    drawnParts(step.parts),
    step.files.map(drawnFile),
    step.rest ? element('p', { class: 'quiet small' }, 'Elsewhere: ' + step.rest + '.') : '',
    folded('All lines', step.table, false),
    step.modules ? drawnModules(step.modules) : '',
    element('h3', { class: 'part-title' }, 'By stack'),
    element('p', { class: 'quiet small' }, 'Width is the share of the step; a coloured end is its part. Click a frame to zoom in, and the top frame to zoom out.'),
    element('div', { class: 'chart', id: 'line-chart' }),
  ].flat(Infinity));
  charts.push(() => drawStacks('line-chart', step.flames));
}

function drawnParts(parts) {
  const label = parts.map((row) => row.part + ' ' + row.share).join(', ');
  return [
    element('div', { class: 'bar thin', role: 'img', 'aria-label': label }, parts.map((row) => {
      const piece = element('span', { title: row.part + ': ' + row.share, class: row.tenths < 60 ? 'narrow' : '' },
        row.tenths >= (isNarrow() ? 250 : 90) ? row.part + ' ' + Math.round(row.tenths / 10) + ' %' : '');
      Object.assign(piece.style, { flexGrow: row.tenths, background: PARTS[row.part], color: ink(PARTS[row.part]) });
      return piece;
    })),
    element('ul', { class: 'parts' }, parts.map((row) => {
      const swatch = element('span', { class: 'swatch' });
      swatch.style.background = PARTS[row.part];
      return element('li', {}, swatch, element('b', {}, row.share), row.part);
    })),
  ];
}

function barOfParts(pieces) {
  return pieces.map(([part, width]) => {
    const piece = element('i', {});
    Object.assign(piece.style, { width: width + '%', background: PARTS[part] });
    return piece;
  });
}

function drawnFile(file) {
  return [
    element('h3', { class: 'part-title' }, element('code', {}, file.name), element('span', { class: 'quiet' }, ' ' + file.share + ' of the step')),
    file.note ? element('p', { class: 'quiet small' }, file.note) : '',
    element('div', { class: 'heat lines', tabindex: '0', role: 'group', 'aria-label': 'Lines of ' + file.name }, element('div', { class: 'sheet' }, file.pieces.map(drawnPiece))),
  ];
}

function drawnPiece(piece) {
  if (piece.left_out) return element('div', { class: 'gap quiet' }, '⋯ ' + piece.left_out);
  const rows = piece.rows.map(drawnSourceLine);
  return piece.folded ? element('details', {}, element('summary', { class: 'gap quiet' }, '⋯ ' + piece.folded), rows) : rows;
}

function drawnSourceLine(row) {
  return element('div', { class: 'row' + (row.share ? ' warm' : ''), title: row.title },
    element('span', { class: 'gutter' },
      element('span', { class: 'at' }, String(row.line)),
      element('span', { class: 'meter' }, barOfParts(row.bar || [])),
      element('span', { class: 'share' }, row.share || '')),
    element('span', { class: row.is_function ? 'quiet' : '' }, row.text || ' '),
    row.note ? element('span', { class: 'note' }, sentence(row.note)) : '');
}

function drawnModules(modules) {
  return [
    element('h3', { class: 'part-title' }, 'By module'),
    element('p', { class: 'quiet small' }, 'Forward and backward as share of the step: with the modules inside, and of the module itself. ' + modules.outside + ' of the step is outside of modules.'),
    element('div', { class: 'tree' },
      element('div', { class: 'row head' }, element('span', {}, 'module'), element('span', { class: 'meter-head' }, ''), element('span', { class: 'number' }, 'all'), element('span', { class: 'number' }, 'itself')),
      modules.roots.map((root) => drawnModule(root, 0))),
  ];
}

function moduleRow(tag, module, depth, note) {
  const name = element('span', { class: 'name' }, element('code', {}, module.name),
    element('span', { class: 'quiet' }, [module.kind === module.name ? '' : module.kind, note].filter(Boolean).map((word) => ' ' + word).join(',')));
  name.style.paddingLeft = 18 + 16 * depth + 'px';
  return element(tag, { class: 'row' }, name,
    element('span', { class: 'meter' }, barOfParts([['forward', module.forward], ['backward', module.backward]])),
    element('span', { class: 'number' }, sentence(module.share)), element('span', { class: 'number quiet' }, sentence(module.own)));
}

function drawnModule(module, depth) {
  if (!module.children.length && !module.layers.length) return moduleRow('div', module, depth, module.each);
  const layers = module.layers.map((layer) => moduleRow('div', layer, depth + 2));
  let title = '';
  if (layers.length) {
    title = element('summary', { class: 'quiet small' }, 'layer by layer');
    title.style.paddingLeft = 18 + 16 * (depth + 1) + 'px';
  }
  return element('details', { open: module.open }, moduleRow('summary', module, depth, module.each),
    module.children.map((child) => drawnModule(child, depth + 1)),
    layers.length ? element('details', { class: 'layers' }, title, layers) : '');
}
