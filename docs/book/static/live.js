// Puts the live figures in the places of their pictures. A figure tells how high it is, and is told
// whether the book is dark or light. Pages that were opened as files can only exchange messages.
'use strict';

const darkSystem = matchMedia('(prefers-color-scheme: dark)');
const isDark = () => {
  const theme = document.body.dataset.theme;
  return theme === 'dark' || (theme !== 'light' && darkSystem.matches);
};

addEventListener('DOMContentLoaded', () => {
  const frames = [...document.querySelectorAll('figure.live')].map(figure => {
    const frame = document.createElement('iframe');
    frame.loading = 'lazy';
    frame.src = figure.dataset.page;
    frame.title = figure.querySelector('img').alt;
    figure.prepend(frame);
    figure.classList.add('plays');
    return frame;
  });
  const tellTheme = frame =>
    frame.contentWindow.postMessage({ theme: isDark() ? 'dark' : 'light' }, '*');
  addEventListener('message', event => {
    const frame = frames.find(one => one.contentWindow === event.source);
    if (!frame) return;
    if (event.data.ready) tellTheme(frame);
    if (event.data.height) frame.style.height = `${Math.ceil(event.data.height) + 2}px`;
  });
  new MutationObserver(() => frames.forEach(tellTheme))
    .observe(document.body, { attributes: true, attributeFilter: ['data-theme'] });
  darkSystem.addEventListener('change', () => frames.forEach(tellTheme));
});
