/** Where the browser keeps the key or token: for this tab, until it is closed. */
const STORED = 'coppice.token'

/**
 * A dialog in GraphiQL's page that asks for a key or a token, and a script that sends it with every request of the page
 * to this server: the schema, queries, mutations and subscriptions all go through `fetch`. It asks again when the server
 * does not take it, and in the meantime the request waits.
 */
export const TOKEN_DIALOG = `<style>
#coppice-token { border: 0; border-radius: 8px; padding: 24px; max-width: 440px; font: 15px/1.5 system-ui, sans-serif; box-shadow: 0 8px 40px #0006 }
#coppice-token::backdrop { background: #0008 }
#coppice-token input { box-sizing: border-box; width: 100%; margin: 12px 0; padding: 8px; font: 14px monospace }
#coppice-token button, #coppice-token-change { padding: 6px 14px; font: 14px system-ui, sans-serif; cursor: pointer }
#coppice-token p { margin: 0 } #coppice-token-why { color: #b00020 }
#coppice-token-change { position: fixed; right: 12px; bottom: 12px; z-index: 10; opacity: .8 }
</style>
<script>
(() => {
  const fetchAsIs = window.fetch.bind(window)
  let token = sessionStorage.getItem('${STORED}')
  let asking
  function ask(why) {
    asking ??= new Promise((resolve) => {
      const dialog = document.createElement('dialog')
      dialog.id = 'coppice-token'
      dialog.innerHTML = '<form><p>This server asks for a key or a token.</p><p id="coppice-token-why"></p>' +
        '<input type="password" autocomplete="off" aria-label="Key or token" required autofocus>' +
        '<button>Use it</button></form>'
      dialog.querySelector('#coppice-token-why').textContent = why
      dialog.addEventListener('cancel', (event) => event.preventDefault())
      dialog.addEventListener('submit', (event) => {
        event.preventDefault()
        token = dialog.querySelector('input').value.trim().replace(/^Bearer +/i, '')
        sessionStorage.setItem('${STORED}', token)
        dialog.remove()
        asking = undefined
        resolve()
      })
      document.body.append(dialog)
      dialog.showModal()
    })
    return asking
  }
  window.fetch = async (input, init) => {
    const request = new Request(input, init)
    if (new URL(request.url).origin !== location.origin) return fetchAsIs(request)
    // One that was written into GraphiQL's own headers goes before it.
    const isOwn = request.headers.has('authorization')
    for (;;) {
      if (!isOwn && !token) await ask('')
      const attempt = request.clone()
      const used = token
      if (!isOwn) attempt.headers.set('authorization', 'Bearer ' + used)
      const response = await fetchAsIs(attempt)
      if (isOwn || response.status !== 401) return response
      const answer = await response.clone().json().catch(() => undefined)
      if (token === used) token = null
      if (!token) await ask(answer?.errors?.[0]?.message ?? 'It was not taken.')
    }
  }
  addEventListener('DOMContentLoaded', () => {
    const change = document.createElement('button')
    change.id = 'coppice-token-change'
    change.textContent = 'Change token'
    change.onclick = () => ask('')
    document.body.append(change)
  })
})()
</script>
`
