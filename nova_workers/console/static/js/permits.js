// Browsers allow 6 connections to a server over HTTP/1.1, and an open stream holds one for as long as it lasts. All pages
// share some permits for streams, so that connections are left for what a person does.
const PERMITS = 4;

// Returns what gives the permit back; null if other pages have them all. The page that a person turned to takes one from
// another page, whose `onLost` is called.
export async function takePermit(onLost) {
  // Browsers have locks over https and for localhost only: elsewhere nothing is shared.
  if (!navigator.locks) return () => {};
  const names = Array.from({ length: PERMITS }, (_, at) => `nova:stream:${at}`);
  for (const name of names) {
    const release = await requestLock(name, { ifAvailable: true }, onLost);
    if (release) return release;
  }
  return document.hasFocus() ? requestLock(names[Math.floor(Math.random() * PERMITS)], { steal: true }, onLost) : null;
}

function requestLock(name, options, onLost) {
  return new Promise((answer) => {
    const hold = (lock) => (lock ? new Promise((release) => answer(release)) : answer(null));
    navigator.locks.request(name, options, hold).catch(onLost);
  });
}
